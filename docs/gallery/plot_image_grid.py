"""Images side by side, such as what an attack made of them."""

import numpy as np

import mrsa_jax as mj

digits = mj.data.load("digits").test_inputs[:6]
noise = np.random.default_rng(0).normal(size=digits.shape)
noisy = digits + 0.3 * noise
scores = [f"{value:.1f} dB" for value in np.asarray(mj.attacks.psnr(noisy, digits))]
with mj.plotting.style("single"):
    figure = mj.plotting.plot_image_grid(
        [("original", digits), ("with noise", noisy)], scores=[None, scores]
    )
    figure.savefig("plot_image_grid.svg")
