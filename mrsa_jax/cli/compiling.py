"""Say which program takes long to compile, while it does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

_SECONDS = 5.0
_COMPILING = "/jax/core/compile/backend_compile_duration"


class SlowPrograms:
    """Reports a program once it has been compiling for five seconds.

    JAX tells when it begins to compile a program, and when it has ended.

    Args:
        say: Shows a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._is_heard = False
        # of each thread that compiles
        self._waiting: dict[int, threading.Timer] = {}

    def listen(self) -> None:
        """Listen to JAX, if it is there by now; may be called again."""
        if self._is_heard or "jax" not in sys.modules:
            return
        from jax import monitoring

        self._is_heard = True
        monitoring.register_scalar_listener(self._begun)
        monitoring.register_event_duration_secs_listener(self._ended)

    def close(self) -> None:
        """Listen no more."""
        if not self._is_heard:
            return
        from jax import monitoring

        self._is_heard = False
        monitoring.unregister_scalar_listener(self._begun)
        monitoring.unregister_event_duration_listener(self._ended)
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _begun(self, event: str, value: float, **about: Any) -> None:
        if event != _COMPILING:
            return
        name = str(about.get("fun_name", "a program"))
        timer = threading.Timer(_SECONDS, self._report, [name])
        timer.daemon = True
        self._waiting[threading.get_ident()] = timer
        timer.start()

    def _ended(self, event: str, duration_secs: float, **about: Any) -> None:
        if event == _COMPILING:
            timer = self._waiting.pop(threading.get_ident(), None)
            if timer is not None:
                timer.cancel()

    def _report(self, name: str) -> None:
        from mrsa_jax._core.device_words import device_name

        self._say(f"compiling {name} for {device_name()}")
