"""The notice kept beside a cached model: where its files come from, and under which licence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.catalogue.entries import Entry

# The permission notice must go with every copy, and not every wheel carries it. Apache-2.0's text is in `licenses/`
# or in this project's own LICENSE.
_MIT = """
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def notice_of(model: Entry) -> str:
    """Return the text of the file `NOTICE` in the model's folder."""
    sources = "".join(f"  {f.path}: {f.wheel.requirement}, {f.member}, sha256 {f.sha256}\n" for f in model.files)
    said = (
        f"{model.name}\n\n"
        f"Made from {model.origin}; its weights are under the licence {model.licence}, copyright of the authors named "
        "on that model's card.\n"
        f"Taken unchanged from these published packages, whose own notices are in licenses/:\n{sources}"
        "The configuration files beside them were written by vectorsearch.\n"
    )
    return said + (_MIT if model.licence == "MIT" else "")
