"""What the numbers of a checkpoint look like, tensor by tensor and over its depth, and what is wrong with them.

`measure(architecture)` reads the weights once, a piece at a time, and gives `Values`: plain data, with `to_json()`. NumPy alone, but for containers whose
numbers must be unpacked first (GGUF in blocks, torch's own 8-bit and 4-bit floats), which go through the reader that `build` uses.
"""

from mapper.values.measure import measure as measure
from mapper.values.result import Strip as Strip
from mapper.values.result import TensorValues as TensorValues
from mapper.values.result import Trouble as Trouble
from mapper.values.result import Values as Values
