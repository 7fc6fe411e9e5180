"""Let the tests of this folder import the fakes and the explorer that lie beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
