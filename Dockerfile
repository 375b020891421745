# planner ui in a container: a user without rights, and nothing to write but /tmp. SECURITY.md has the
# command to start it. This file was not built where planner is developed: there is no Docker daemon.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY planner planner
COPY hardware_specs hardware_specs
COPY search_spaces search_spaces
RUN python -m venv /opt/planner \
    && /opt/planner/bin/pip install --no-cache-dir '.[ui]' \
    && /opt/planner/bin/python -m compileall -q /opt/planner

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home --home-dir /tmp planner
COPY --from=build /opt/planner /opt/planner
ENV PATH=/opt/planner/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp XDG_CACHE_HOME=/tmp/cache
USER 10001
WORKDIR /tmp
EXPOSE 8765
STOPSIGNAL SIGTERM
ENTRYPOINT ["planner", "ui", "--host", "0.0.0.0"]
