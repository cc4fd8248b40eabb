"""Imported by multiprocessing's fork server when it starts: it leaves the process group of the program.

The server has no other place for code of ours, and a signal to the group would end it and every worker it has made.
"""

import os

os.setpgid(0, 0)
