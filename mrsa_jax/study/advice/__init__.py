"""The choice of a scheme: what is measured in a log, what each scheme gives, which to take."""

from mrsa_jax.study.advice._advice import Advice
from mrsa_jax.study.advice._candidates import Setting
from mrsa_jax.study.advice._choice import Demands
from mrsa_jax.study.advice._log import Measured, Rate
from mrsa_jax.study.advice._options import Option
from mrsa_jax.study.advice._play import Played

__all__ = ["Advice", "Demands", "Measured", "Option", "Played", "Rate", "Setting"]
