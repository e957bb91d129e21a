"""The command line of `tests/cluster/run`: each step's name, and at the end whether all held."""

import argparse
import sys
import time

from cluster.story import Story
from cluster.tools import StepError, Tools


def main(arguments: list[str] | None = None) -> int:
    """Run all steps; the exit code is 1 where one failed."""
    given = _parser().parse_args(arguments)
    story = Story(Tools(given.kubeconfig, given.release_namespace), given.image, given.hardware, given.set)
    began = time.monotonic()
    for number, step in enumerate(story.steps(), start=1):
        print(f"[{time.monotonic() - began:6.1f} s] {number}. {(step.__doc__ or step.__name__).strip()}", flush=True)
        try:
            step()
        except StepError as error:
            print(f"FAILED: {error}", file=sys.stderr)
            print("The cluster stays as it is now, to be looked at.", file=sys.stderr)
            return 1
    print(f"[{time.monotonic() - began:6.1f} s] Everything held; the cluster is as it was.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tests/cluster/run",
        description="Installs gpuledger on an empty cluster as docs/installing.md says, has pods share simulated GPUs "
        "and go through preflight checks, breaks and recovers a GPU, has a node set aside, remedied and given back, "
        "turns the checks off and on, gives a node a file and rolls it back, upgrades, uninstalls, and looks for what "
        "is left. It needs kubectl and helm, and an administrator's kubeconfig. Never run it on a cluster in use.",
    )
    parser.add_argument("--kubeconfig", required=True, help="an administrator's kubeconfig of an empty cluster")
    parser.add_argument(
        "--image", required=True, help="the image that the nodes can pull, such as registry/gpuledger:1"
    )
    parser.add_argument("--hardware", default="2xH100", help="the simulated cards of each node, at least two")
    parser.add_argument("--release-namespace", default="gpu-system", help="the namespace to install into")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a further value for helm")
    return parser
