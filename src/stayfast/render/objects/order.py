"""The files of a bundle that hold objects, ours and those of installed packages, in the order of their names."""

from __future__ import annotations

import functools

from stayfast.registry import Registry
from stayfast.render.rendered_file import RenderedFile

RENDERED_FILES: Registry[RenderedFile] = Registry(
    "stayfast.rendered_objects",
    {
        "namespace": "stayfast.render.objects.access:NAMESPACE",
        "access": "stayfast.render.objects.access:ACCESS",
        "config": "stayfast.render.objects.access:CONFIG",
        "storage": "stayfast.render.objects.storage:STORAGE",
        "capacity": "stayfast.render.objects.kueue:CAPACITY",
        "workload": "stayfast.render.objects.workload:WORKLOAD",
        "pod-monitoring": "stayfast.render.objects.monitoring:POD_MONITORING",
        "prometheus-rule": "stayfast.render.objects.monitoring:PROMETHEUS_RULE",
        "managed-rules": "stayfast.render.objects.monitoring:MANAGED_RULES",
    },
)


@functools.cache
def rendered_files() -> tuple[RenderedFile, ...]:
    """All of them: first those that are applied, then the optional ones."""
    found = RENDERED_FILES.parts()
    return (*sorted(part for part in found if not part.is_optional), *(part for part in found if part.is_optional))
