"""The commands of the servers of a serving plan: options, routers, benchmark and drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from planner.base.enums import AdapterTargets
from planner.base.records import record
from planner.base.training_aliases import served_targets
from planner.configurations.configuration_tables import OF_PREFILL, PREFILL
from planner.launch.option_table import (
    OptionTable,
    OptionTexts,
    ParameterNote,
    Quantities,
    tool_row,
)
from planner.launch.target import (
    PORT,
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    Process,
    ShellVariable,
    user_arguments,
)
from planner.launch.write.benchmark import length_notes, serving_benchmark
from planner.launch.write.server_groups import (
    DECODE_POOL,
    DRAFT_MODEL,
    HEADS,
    NOTHING_ONLINE,
    PREFILL_POOL,
    ServerGroup,
    cached_share,
    draft_model_argument,
    published_repository,
    server_groups,
    server_quantities,
    unlisted_draft_method,
)

# Names of targets in benchmarks.
_BENCHMARK_NAMES = {"llama-server": "llama.cpp"}
LORA_OPTION = "--lora-target-modules"
_TARGET_MODULES: Mapping[AdapterTargets, tuple[str, ...]] = {
    AdapterTargets.QUERY_VALUE: ("q_proj", "v_proj"),
    AdapterTargets.ATTENTION: ("q_proj", "k_proj", "v_proj", "o_proj"),
}
_FRONT_PORT = 8000


def model_argument(worker: ServerGroup, checkpoint: str | None) -> str | ShellVariable:
    """Return the model for a command: an ORG/NAME, or a variable that the user must set.

    ``checkpoint`` is the quantization that a separate checkpoint must have.
    """
    job = worker.job
    if checkpoint is None and (name := published_repository(worker) or job.hub_name):
        return name
    description = "a checkpoint" if checkpoint is None else f"a checkpoint in {checkpoint}"
    return ShellVariable(
        name="MODEL", meaning=f"folder or ORG/NAME of {description} of {job.model.name}"
    )


def server_urls(worker: ServerGroup) -> list[ShellVariable]:
    """Return one variable per server of a group for its URL; wrappers set the values."""
    name = worker.name.upper()
    return [
        ShellVariable(name=f"{name}_URL_{copy}", meaning=f"address of copy {copy} of {worker.name}")
        for copy in range(worker.copies)
    ]


def make_router_process(arguments: tuple[CommandWords, ...], note: str) -> Process:
    """Return the process of a router, without GPUs, that listens on the public port."""
    return Process(
        name="router",
        arguments=arguments,
        num_nodes=1,
        gpus_per_node=0,
        port=_FRONT_PORT,
        notes=(note,),
    )


def make_benchmark(
    engine: str, job: LaunchJob, model: str | ShellVariable, *, routes_replicas: bool = True
) -> tuple[Process, ...]:
    """Return the process that sends the planned load to the servers.

    If the engine has no router for replicas, the benchmark sends one server its part of the load.
    """
    (worker, *_) = reversed(server_groups(job))
    servers = worker.copies if routes_replicas or job.is_disaggregated else 1
    rate, shared = job["request_rate"], cached_share(job)
    prompts, answers = (float(job[f"{length}_variation"] or 0.0) for length in ("input", "output"))
    images, size = float(job["images_per_sample"] or 0.0), str(job["image_size"] or "")
    text = float(job["input_tokens"])
    if size:
        text = max(text - images * float(job["tokens_per_image"]), 1.0)
    # With a rate, Poisson arrivals; else as many requests in flight as the plan's concurrency.
    command_words = serving_benchmark(
        engine,
        model=_MODEL,
        input_tokens=text,
        output_tokens=float(job["output_tokens"]),
        request_rate=None if rate is None else float(rate) * servers / worker.copies,
        concurrency=None if rate else int(worker.values["concurrency"]) * servers,
        prefix_cache_hit_rate=shared,
        input_variation=prompts,
        output_variation=answers,
        url=f"http://127.0.0.1:{_FRONT_PORT}",
        images=images if size else 0.0,
        image_size=size,
    )
    # Words before the first option, then each option with its values.
    lines: list[list[str | ShellVariable]] = [[]]
    for word in command_words:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(model if word == _MODEL else word)
    arguments = tuple(CommandWords(words=tuple(line)) for line in lines if line)
    notes = length_notes(
        engine, input_variation=prompts, output_variation=answers, has_prefix=shared > 0
    )
    if (images and not size) or job["audio_seconds"]:
        notes += ("it sends text in place of images and sound: plan images with --image-size",)
    return (
        Process(name="benchmark", arguments=arguments, num_nodes=1, gpus_per_node=0, notes=notes),
    )


_MODEL = "\0model"


def target_modules(job: LaunchJob, *, says_all: bool) -> list[CommandWords]:
    """The option for matrices with adapters; ``says_all``: also written for all matrices."""
    targets = served_targets(job["lora_targets"])
    words = _TARGET_MODULES.get(targets, ("all",) if says_all else ())
    return [CommandWords(words=(LORA_OPTION, *words))] if job["lora_rank"] and words else []


def draft_arguments(
    server: ServerCommand, separate: str, option: str, model: str, *, upper: bool
) -> list[CommandWords]:
    """Return arguments of speculative decoding that no row of the option table has.

    ``separate`` is the method with a model of its own, ``option`` takes the method, ``model`` the
    model or the heads that draft; ``upper``: method in upper case.
    """
    job, method = server.worker.job, unlisted_draft_method(server.worker.job)
    has_model = any(setting.text == separate for setting in server.settings.options)
    arguments = [CommandWords(words=(model, draft_model_argument(job)))] if has_model else []
    if method is None:
        return arguments
    arguments.append(CommandWords(words=(option, method.upper() if upper else str(method))))
    heads = ShellVariable(name=DRAFT_MODEL, meaning="folder or ORG/NAME of the heads that draft")
    return [*arguments, *([CommandWords(words=(model, heads))] if method in HEADS else [])]


_POOL_PARAMETERS = ("checkpoint_quantization",)
_NO_ROUTER = (
    "The engine brings no router for replicas: any HTTP load balancer will do. The "
    "benchmark measures the first of them under its share of the load."
)


@record(kw_only=True)
class ServerCommand:
    """A worker in the options of its engine, a target.

    ``has_router``: it is one of several servers behind one address.
    """

    engine: str
    worker: ServerGroup
    settings: OptionTexts
    model: str | ShellVariable
    has_router: bool

    @property
    def listen_arguments(self) -> list[CommandWords]:
        """Options of the listening address and port."""
        port: str | ShellVariable = PORT if self.worker.copies > 1 else str(self.port)
        return [CommandWords(words=("--host", "0.0.0.0")), CommandWords(words=("--port", port))]

    @property
    def port(self) -> int:
        """Port of the first copy; a router takes the public port."""
        if not self.has_router:
            return _FRONT_PORT
        return _FRONT_PORT + (2000 if self.worker.name == DECODE_POOL else 100)

    @property
    def start(self) -> list[CommandWords]:
        """Words that start the engine with the model and the address: ``starts`` of its row."""
        lines = tool_row(self.engine)["starts"].split("|")
        words = (
            tuple(self.model if word == "{model}" else word for word in line.split())
            for line in lines
        )
        return [*(CommandWords(words=line) for line in words), *self.listen_arguments]

    @property
    def options(self) -> list[CommandWords]:
        """The options of the plan that are flags or have a value."""
        return [CommandWords.of(o) for o in self.settings.options if o.option.startswith("-")]

    def process(
        self,
        arguments: list[CommandWords],
        *,
        launcher: str = "",
        follower_arguments: tuple[CommandWords, ...] = (),
    ) -> Process:
        """Return the process that runs this server with ``arguments``."""
        worker = self.worker
        gpu = worker.gpu.name
        notes = () if gpu == worker.job.gpu.name else (f"runs on {gpu}",)
        return Process(
            name=worker.name,
            arguments=tuple(arguments),
            num_nodes=worker.num_nodes,
            gpus_per_node=worker.gpus_per_node,
            copies=worker.copies,
            port=self.port,
            notes=notes,
            launcher=launcher,
            follower_arguments=follower_arguments,
        )


def make_routers(
    servers: tuple[ServerCommand, ...],
    program: Sequence[CommandWords],
    pools: str,
    pool_arguments: Sequence[CommandWords],
    note: str,
) -> list[Process]:
    """Return the router of several servers, which takes replicas by their addresses; with pools,
    ``pools`` and ``pool_arguments``.
    """
    if not servers[0].has_router:
        return []
    server_arguments = [CommandWords(words=("--worker-urls", *server_urls(servers[0].worker)))]
    if len(servers) > 1:
        server_arguments = [CommandWords(words=(pools,)), *pool_arguments]
    listening = CommandWords(words=("--host", "0.0.0.0", "--port", str(_FRONT_PORT)))
    return [make_router_process((*program, *server_arguments, listening), note)]


def make_servers(
    job: LaunchJob,
    engine: str,
    quantities: Callable[[ServerGroup], Quantities],
    model: Callable[[ServerGroup, str | None], str | ShellVariable],
    *,
    routes_replicas: bool = True,
) -> tuple[ServerCommand, ...]:
    """Return a server command for each server group of a plan, with the options of ``engine``.

    ``model`` returns the model argument. ``routes_replicas``: True if the engine has a router for
    replicas, not only for pools.
    """
    workers, table = server_groups(job), OptionTable.load(engine)
    servers = []
    for worker in workers:
        values = quantities(worker)
        checkpoint = values.get("checkpoint_quantization")
        servers.append(
            ServerCommand(
                engine=engine,
                worker=worker,
                settings=table.write_options(values),
                model=model(worker, None if checkpoint is None else str(checkpoint)),
                has_router=len(workers) > 1 or (routes_replicas and workers[0].copies > 1),
            )
        )
    return tuple(servers)


def server_hooks(
    name: str,
    quantities: Callable[[ServerGroup], Quantities] | None = None,
    process: Callable[[ServerCommand], Process] = lambda server: server.process(
        [*server.start, *server.options, *user_arguments(server.engine, server.worker.job)]
    ),
    router: Callable[[tuple[ServerCommand, ...]], Sequence[Process]] = lambda servers: (),
    *,
    model: Callable[[ServerGroup, str | None], str | ShellVariable] = model_argument,
    files: Callable[[ServerCommand], LaunchOutputFile] | None = None,
    left: Callable[[tuple[ServerCommand, ...]], tuple[ParameterNote, ...]] = lambda servers: (),
    tokenizer: Callable[[LaunchJob], str | ShellVariable] | None = None,
    routes_replicas: bool = True,
    online: Mapping[str, bool] = NOTHING_ONLINE,
) -> Mapping[str, Callable[..., Any]]:
    """Return functions of a `LaunchTarget` that writes engine commands: ``quantities``, ``draft``.

    ``process`` makes the process of a server, ``router`` the router of several; ``model`` returns
    the model argument, ``files`` the files that a server reads, ``left`` notes on user decisions,
    ``tokenizer`` the tokenizer of the benchmark if it is not the model. ``routes_replicas``: there
    is a router for replicas, too, not only for pools. ``online``: see `quantization_options`;
    without ``quantities`` the values are those of the table.
    """
    values_of = quantities or partial(server_quantities, engine=name, online=online)

    def draft(job: LaunchJob, _: OptionTexts) -> LaunchDraft:
        """Return the launch draft of a job: server and router processes, files, benchmark."""
        servers = make_servers(job, name, values_of, model, routes_replicas=routes_replicas)
        tokenizer_argument = servers[-1].model if tokenizer is None else tokenizer(job)
        benchmark_name = _BENCHMARK_NAMES.get(name, name)
        return make_draft(
            servers,
            (*map(process, servers), *router(servers)),
            files=() if files is None else tuple(map(files, servers)),
            left=left(servers),
            benchmark=make_benchmark(
                benchmark_name, job, tokenizer_argument, routes_replicas=routes_replicas
            ),
        )

    return {"quantities": lambda job: values_of(server_groups(job)[-1]), "draft": draft}


def make_draft(
    servers: tuple[ServerCommand, ...],
    processes: tuple[Process, ...],
    *,
    benchmark: tuple[Process, ...],
    files: tuple[LaunchOutputFile, ...] = (),
    left: tuple[ParameterNote, ...] = (),
) -> LaunchDraft:
    """Return the launch draft of servers; notes on the prefill pool get its prefix."""
    first_server = servers[0]
    unexpressed = [
        ParameterNote(parameter=PREFILL + remark.parameter, value=remark.value, note=remark.note)
        for server in servers[:-1]
        for remark in server.settings.unexpressed
        if remark.parameter in OF_PREFILL or remark.parameter in _POOL_PARAMETERS
    ]
    unexpressed += [remark for server in servers for remark in _raised_token_notes(server)]
    return LaunchDraft(
        processes=processes,
        files=files,
        unexpressed=tuple(unexpressed),
        left=left,
        benchmark=benchmark,
        notes=() if first_server.has_router or first_server.worker.copies == 1 else (_NO_ROUTER,),
    )


def _raised_token_notes(server: ServerCommand) -> list[ParameterNote]:
    """Return a note if a server's tokens per step were raised to one per sequence; else empty."""
    worker = server.worker
    name, tokens = "max_num_batched_tokens", worker.max_num_batched_tokens
    planned = int(worker.values[name])
    unexpressed = {remark.parameter for remark in server.settings.unexpressed}
    if tokens == planned or name in unexpressed:
        return []
    prefix = PREFILL if worker.name == PREFILL_POOL else ""
    note = f"engines need one for each sequence of a rank; the file has {tokens:,}"
    return [ParameterNote(parameter=prefix + name, value=str(planned), note=note)]
