"""slurm/: a batch job that starts the server on as many nodes as it takes, and the script that it runs on each."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.domain.plan import Plan
from tuner.output.container import program_name, secret_names
from tuner.output.header import header_lines
from tuner.output.launch_files import launch_files
from tuner.output.pod import name_of
from tuner.output.render import render
from tuner.output.scripts import ServeScriptEmitter, program_variable

FOLDER = "slurm"
_MINUTES = 480


class SlurmEmitter:
    """sbatch, without Ray: every node runs the same script and knows its rank."""

    name = "slurm"
    summary = "a Slurm job: sbatch slurm/job.sbatch"

    def refusal(self, plan: Plan) -> str | None:  # noqa: ARG002
        """Say nothing: every plan can be written so."""
        return None

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `slurm/job.sbatch`, `slurm/serve.sh` and the files that the program reads."""
        launch = plan.launch
        text = render(
            "job.sbatch.j2",
            header=header_lines(plan),
            name=name_of(plan),
            nodes=launch.nodes.count if launch.nodes else 1,
            ranks=_ranks(plan),
            gpus=(launch.nodes.devices if launch.nodes else launch.devices) * plan.sizing.replicas,
            replicas=plan.sizing.replicas,
            cores=max(1, plan.study.hardware.cores // _tasks(plan)),
            minutes=_MINUTES,
            port=launch.port,
            local=launch.model_is_local,
            program_variable=program_variable(launch),
            program=program_name(launch),
            internal_port=f"{plan.config.engine.upper()}_PORT",
            secrets=secret_names(plan),
        )
        beside = {**ServeScriptEmitter().files(plan), **launch_files(plan)}
        return {f"{FOLDER}/job.sbatch": text, **{f"{FOLDER}/{name}": body for name, body in beside.items()}}


def _ranks(plan: Plan) -> int:
    """Return how many ranks MPI starts on each node; 0 for a server that needs no MPI."""
    nodes = plan.launch.nodes
    return nodes.devices if nodes and nodes.launcher else 0


def _tasks(plan: Plan) -> int:
    return _ranks(plan) or plan.sizing.replicas
