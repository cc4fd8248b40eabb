"""Node pools as gcloud commands."""

from __future__ import annotations

import shlex

from stayfast.capacity.machines.gke_keys import SPOT
from stayfast.documents.writer import document
from stayfast.render.context import RenderContext
from stayfast.render.pools.pool import NodePool, node_pools

GRACE_FILE = "node-config/spot-grace.yaml"
_HEAD = """\
set -eu
: "${CLUSTER:?set CLUSTER to the name of the cluster}"
: "${LOCATION:=%s}"
here=$(dirname "$0")
exists() {
  gcloud container node-pools describe "$1" --cluster="$CLUSTER" --location="$LOCATION" >/dev/null 2>&1
}
"""


def gcloud_script(outline: RenderContext) -> str:
    """Makes what is not there yet; safe to run twice."""
    commands = "".join(f"\n# {pool.why}\n{_create(pool)}" for pool in node_pools(outline))
    return _HEAD % shlex.quote(outline.plan.region) + commands


def _create(pool: NodePool) -> str:
    name = shlex.quote(pool.name)
    lines = [f"exists {name} || gcloud container node-pools create {name}", *(f"  {flag}" for flag in flags(pool))]
    return " \\\n".join(lines) + "\n"


def flags(pool: NodePool) -> list[str]:
    """The flags, in the order of their weight."""
    found = ['--cluster="$CLUSTER"', '--location="$LOCATION"', f"--machine-type={pool.machine}"]
    if pool.gpu:
        found.append(f"--accelerator=type={pool.gpu},count={pool.gpu_count},gpu-driver-version=latest")
    if pool.spot:
        found += ["--spot", f"--node-taints={SPOT}=true:NoSchedule"]
    if pool.flex_start:
        found.append("--flex-start")
    if pool.queued:
        found.append("--enable-queued-provisioning")
    if pool.run_seconds:
        found.append(f"--max-run-duration={pool.run_seconds}s")
    if pool.shutdown_seconds:
        found.append(f'--system-config-from-file="$here/{GRACE_FILE}"')
    found += ["--enable-autoscaling", f"--num-nodes={min(1, pool.least_nodes)}"]
    found += [f"--total-min-nodes={pool.least_nodes}", f"--total-max-nodes={pool.most_nodes}"]
    if pool.has_accelerator:
        found.append("--location-policy=ANY")
    if pool.spot or pool.flex_start:
        found.append("--reservation-affinity=none")  # neither may use reservations; on-demand should
    if pool.flex_start:
        found.append("--no-enable-autorepair")
    if pool.zones:
        found.append(f"--node-locations={','.join(pool.zones)}")
    found.append("--workload-metadata=GKE_METADATA")
    return found


def grace_config(outline: RenderContext) -> str:
    """The kubelet's shutdown grace period, in the file that gcloud takes."""
    window = outline.window
    return document(
        {
            "kubeletConfig": {
                "shutdownGracePeriodSeconds": window.shutdown_seconds,
                "shutdownGracePeriodCriticalPodsSeconds": window.critical_seconds,
            }
        }
    )
