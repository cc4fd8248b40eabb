"""As plain, with workers that live as long as the loader."""

import os
import runpy

os.environ["MATRIX_PERSISTENT"] = "1"
runpy.run_path(os.path.join(os.path.dirname(__file__), "plain.py"), run_name="__main__")
