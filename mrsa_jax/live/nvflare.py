"""Records NVFlare's rounds: `mrsa_watch.nvflare`, under this package's name."""

from mrsa_watch.nvflare import ParticipationRecorder

__all__ = ["ParticipationRecorder"]
