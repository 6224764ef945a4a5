"""Provide what every family builds on.

- `arrays`: Read arrays from what users pass.
- `batches`: Decide how much work goes at once.
- `bytecode`: Names that compiled code looks up.
- `chacha20`: The rounds of ChaCha20, for array programs and kernels (RFC 8439).
- `chacha20_kernel`: ChaCha20 in one launch on NVIDIA GPUs.
- `chacha20_loops`: ChaCha20 keystream as a compiled loop, for pads on the CPU (RFC
  8439).
- `compile_cache`: Keep compiled programs on disk, between runs. Nothing here imports
  JAX.
- `compiled`: Compiled loops for exact searches on the CPU; elimination modulo a prime
  below 2**31.
- `cores`: How many of the machine's cores there are to use; needed before JAX may be
  imported.
- `device`: Say what the device is that programs run on.
- `device_words`: Name the device in the words of commands.
- `factories`: What factories of schemes do with traced numbers, and which program runs
  a scheme.
- `flags`: Kinds of optional settings, as the command line's help shows them.
- `floats`: NumPy's usual treatment of floating-point errors.
- `forms`: Choose which form of an operation runs: loops, array programs, kernels.
- `gaussian`: Telling N(0, 1) from N(mu, 1), and the privacy that it stands for.
- `kernels`: How a kernel for NVIDIA GPUs is launched (Pallas, through Triton).
- `memory`: What memory is left, and when work is refused for want of it.
- `packaged`: Files that this package holds; `data/files/README.md` says whose they are.
- `mesh`: Deal trials and clients out to the devices of a mesh.
- `prime`: Arithmetic modulo a 31-bit prime on uint32 arrays; integers of any size
  modulo a prime.
- `programs`: Compile functions: inside others, or in less time.
- `pytrees`: Make frozen dataclasses pytrees that print as one types them.
- `registry`: Members of a family by name, and a user's files and modules that register
  them.
- `round_rules`: What the server learns from one round of the protocol: rules as values.
- `sealed`: Arrays in one .npz with a digest of it at its end.
- `selector`: What every selection scheme offers, and the state that it keeps.
- `slots`: Lay rounds out in slots.
- `sources`: What code is made of: texts of modules, versions, and what an object
  reaches.
- `state`: The digest of all that an object reaches, with a rule for each kind of
  object.
- `statistics`: Exact intervals of chances that were counted.
- `status`: The steps of a round, and what became of it.
- `streams`: Named random streams: which key every draw comes from; exact chances on
  words.
- `threads`: Share work over the cores of the CPU.
- `traced`: Tell traced values from known ones.
- `threefry_loops`: Threefry-2x32 in compiled loops: the words and keys of `streams`.
"""
