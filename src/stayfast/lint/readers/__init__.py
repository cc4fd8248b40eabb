"""What else is read beside YAML: shell, Python, Terraform, gcloud commands.

May import: lint.objects, documents.
Start reading: ``shell.py``.
"""
