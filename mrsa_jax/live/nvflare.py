"""Records NVFlare's rounds: `mrsa_watch.nvflare`, under this package's name."""

from mrsa_watch.nvflare import ParticipationRecorder, SiteGuard

__all__ = ["ParticipationRecorder", "SiteGuard"]
