"""Programs that start another program: their options, as far as to find where its words begin."""

from __future__ import annotations

from dataclasses import field

from planner.base.records import record


@record(kw_only=True)
class Program:
    """How the words of a wrapper end.

    ``valued``, ``flags``: its options with and without a value in the next word; ``takes`` says
    what one that is in neither does. ``first`` are words that stand before its options, of which
    one must be there; ``plain`` words come before the command: a duration, an image. ``does``
    names what the words tell: see `planner.launch.launchers.world`.
    """

    does: str = ""
    first: tuple[str, ...] = ()
    valued: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    takes: bool = False
    plain: int = 0
    two: frozenset[str] = field(default_factory=frozenset)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SLURM_FLAGS = _set(
    "-E -I -K -k -l -O -Q -s -u -v -vv -X -Z -H --exclusive --overlap --label --unbuffered --exact "
    "--no-kill --kill-on-bad-exit --quiet --verbose --contiguous --pty --preserve-env --whole "
    "--container-mount-home --no-container-mount-home --container-writable --oversubscribe "
    "--container-readonly --no-container-entrypoint --container-entrypoint --container-remap-root "
    "--no-container-remap-root --overcommit --multi-prog --requeue --no-requeue --spread-job "
    "--use-min-nodes --disable-status --propagate --test-only --reboot --immediate --interactive "
    "--parsable --hold --wait-all-nodes --export-file --external"
)
_TORCHRUN_FLAGS = _set("--standalone -m --module --no_python --run_path --use_env")
_DEEPSPEED_VALUED = _set(
    "-H --hostfile -i --include -e --exclude --num_nodes --num_gpus --master_port --master_addr "
    "--node_rank --launcher --launcher_args --enable_each_rank_log --autotuning --ssh_port "
    "--min_elastic_nodes --max_elastic_nodes --bind_core_list --world_info --venv_script"
)
_MPI_FLAGS = _set(
    "--allow-run-as-root -allow-run-as-root --oversubscribe -oversubscribe --tag-output "
    "-tag-output --report-bindings -report-bindings --bynode --byslot -bynode -byslot -q -v "
    "--nooversubscribe -l --timestamp-output --display-map --display-allocation -prepend-rank"
)
_DOCKER_FLAGS = _set(
    "-d --detach --rm --privileged --init -i -t -it -ti -dit -itd -td -dt -id -di --interactive "
    "--tty -P --publish-all --read-only --no-healthcheck --oom-kill-disable --sig-proxy --tls "
    "--debug -D --nv"
)
_SINGULARITY_VALUED = _set(
    "-B --bind --env --env-file -H --home -W --workdir --pwd --cwd --overlay -o --network --app "
    "--mount --hostname --scratch -S --security --net-args --dns --add-caps --drop-caps --fusemount"
)
_CONTAINER = Program(
    does="container", first=("run", "exec"), flags=_DOCKER_FLAGS, takes=True, plain=1
)
_SINGULARITY = Program(
    does="inside", first=("run", "exec"), valued=_SINGULARITY_VALUED, plain=1
)  # fmt: skip
_CONDA = Program(first=("run",), valued=_set("-n --name -p --prefix --cwd"))

TORCHRUN = Program(does="torchrun", flags=_TORCHRUN_FLAGS, takes=True)
ACCELERATE = Program(
    flags=_set(
        "--multi_gpu --cpu --tpu --ipex --use_deepspeed --use_fsdp --use_megatron_lm --use_xpu "
        "--debug --module -m --no_python --quiet -q --same_network --use_parallelism_config"
    ),
    takes=True,
)
QUIET = _set(
    "echo printf read test [ [[ cd export source . cat tee grep sed awk set unset shift wait sleep "
    "exit return trap ulimit module mkdir rm cp mv ls pip pip3 apt apt-get git curl wget true "
    "false : kill pushd popd chmod which type alias"
)
"""They start nothing, though their words may be those of something that would."""

PROGRAMS = {
    "srun": Program(does="slurm", flags=_SLURM_FLAGS, takes=True),
    "salloc": Program(does="slurm", flags=_SLURM_FLAGS, takes=True),
    "sbatch": Program(does="slurm", flags=_SLURM_FLAGS, takes=True),
    "torchrun": TORCHRUN,
    "deepspeed": Program(does="deepspeed", valued=_DEEPSPEED_VALUED),
    "mpirun": Program(
        does="mpi", flags=_MPI_FLAGS, takes=True,
        two=_set("-mca --mca -gmca --gmca -genv -env --prtemca --pmixmca"),
    ),
    "docker": _CONTAINER,
    "podman": _CONTAINER,
    "nerdctl": _CONTAINER,
    "nvidia-docker": _CONTAINER,
    "apptainer": _SINGULARITY,
    "singularity": _SINGULARITY,
    "kubectl": Program(
        does="dashes", first=("exec", "run"), valued=_set("-n --namespace -c --container"), plain=1
    ),
    "ray": Program(does="dashes", first=("job",), takes=True),
    "ssh": Program(does="remote", valued=_set("-p -i -o -l -F -J -L -R -D -b -c -E -m -O -S -W -w"),
                   plain=1),
    "pdsh": Program(does="remote", valued=_set("-w -x -u -l -t -f -R -g")),
    "uv": Program(
        first=("run",),
        valued=_set("--with --extra --group --python -p --directory --project --env-file --package "
                    "--with-requirements --with-editable --index-url --no-group --only-group"),
    ),
    "poetry": Program(first=("run",)),
    "pdm": Program(first=("run",)),
    "pixi": Program(first=("run",), valued=_set("-e --environment --manifest-path")),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "env": Program(does="env", valued=_set("-u --unset -C --chdir -S")),
    "nohup": Program(),
    "setsid": Program(),
    "time": Program(valued=_set("-o -f")),
    "exec": Program(valued=_set("-a")),
    "command": Program(),
    "builtin": Program(),
    "stdbuf": Program(),
    "unbuffer": Program(),
    "catchsegv": Program(),
    "sudo": Program(does="env", valued=_set("-u -g -h -p -C -D --user --group")),
    "nice": Program(valued=_set("-n --adjustment")),
    "ionice": Program(valued=_set("-c -n -p --class --classdata")),
    "timeout": Program(valued=_set("-s --signal -k --kill-after"), plain=1),
    "taskset": Program(plain=1),
    "numactl": Program(
        valued=_set("-i -w -m -N -C -p -P -S -l --cpunodebind --membind --physcpubind")
    ),
    "nsys": Program(
        first=("profile", "launch"),
        valued=_set("-o -t -c -s -w -x -f --output --trace --force-overwrite --sample --cpuctxsw "
                    "--capture-range --capture-range-end --duration --delay --stats"),
    ),
    "ncu": Program(valued=_set("-o -k -c -s -f --set --section --metrics --export")),
    "trtllm-llmapi-launch": Program(),
    "dlprof": Program(takes=False),
    "tini": Program(valued=_set("-p -e")),
}  # fmt: skip
PROGRAMS["mpiexec"] = PROGRAMS["mpiexec.hydra"] = PROGRAMS["prterun"] = PROGRAMS["mpirun"]

MODULES = {
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "deepspeed.launcher.runner": PROGRAMS["deepspeed"],
}
