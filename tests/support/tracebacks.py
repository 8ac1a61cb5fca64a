"""Local variables in tracebacks."""

from __future__ import annotations

import re
import traceback


def locals_outside(file: str, error: BaseException) -> str:
    """Return the locals of an error's frames outside a file, without addresses."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    shown = [repr(frame.f_locals) for frame in frames if frame.f_code.co_filename != file]
    return re.sub(r" at 0x[0-9a-f]+", "", "".join(shown))
