"""The chapter of evidence on this machine: take the machine away from a program and compare, or show what it does.

May import: everything below the cluster, and cluster.submission for rehearse --cluster.
Start reading: ``rehearse/rehearsal.py``.
"""
