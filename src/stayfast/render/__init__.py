"""From a plan to files that can be applied: Kubernetes objects, node pools, alert rules and the commands to use them.

Pure: values in, texts out. :func:`stayfast.render.bundle.render` is the way in.
"""
