"""Every limit as a named number; each refusal says which limit, what was seen and how much is allowed."""

from __future__ import annotations

HEADER_BYTES = 100_000_000  # safetensors: the format's own limit on its JSON header
TENSORS = 2_000_000  # the largest public checkpoints have under 200,000
NAME_CHARACTERS = 4_096  # of one tensor name
NAME_DEPTH = 64  # words in one tensor name
CONFIG_BYTES = 20_000_000  # config.json; label tables of 20,000 classes take under 2 MB
COMPANION_BYTES = (
    2**27
)  # of a tokenizer's or another such file that is copied; the largest tokenizers have 35 MB
CONFIG_DEPTH = 32  # nested objects in config.json
SETTINGS_VALUES = (
    100_000  # values in a table of settings that training code pickled; one may stand in many places
)
RULE_FILE_BYTES = 1_000_000
DIMENSIONS = 16  # of one tensor
EXTENT = 2**48  # of one dimension: a product of extents stays within 64 bits where a real file is behind it
LAYERS = 100_000  # for which a fact is calculated one by one; a config may claim any number
PICKLE_OPCODES = 50_000_000
PICKLE_DEPTH = 256
PICKLE_FOREIGN = 100  # functions and classes it asks for besides tensors that are kept to be named
PICKLE_NAMES = 1_000  # of one tensor, by tables that hold others many times
PICKLE_INTEGER_BYTES = 32  # of one integer; the largest that torch writes, a magic number, has 10
CODE_BYTES = 20_000_000  # of the classes in one TorchScript archive, read as text
PICKLE_LINE_BYTES = 4_096  # of one argument in text; protocols 0 and 1
NPY_HEADER_BYTES = 10_000  # NumPy's own limit
DEFLATE_RATIO = 1_032  # bytes that one compressed byte can become: the most that the format allows
INFLATED_BYTES = 2**37  # that one compressed array may become, 137 GB
GGUF_ENTRIES = 65_536  # of metadata; files have about thirty
GGUF_ITEMS = (
    4_000_000  # of all lists in the metadata; the largest vocabularies have 260,000 words, and as many merges
)
GGUF_LIST = 4_096  # items of one list that are kept: settings by layer, not words
GGUF_TEXT_BYTES = 10_000_000  # of one text in a header; chat templates have some 10,000
GGUF_DEPTH = 4  # lists in lists
GGUF_ALIGNMENT = 2**20
STACKED = 4_096  # tensors that one is taken apart into: the experts of a layer
GRAPH_DEPTH = 16  # ONNX graphs in graphs, and functions calling functions; exporters write three
GRAPH_NODES = (
    200_000  # of an ONNX model with all its graphs and functions; the largest exported have some 100,000
)
CALLED_NODES = 1_000_000  # with each function counted as often as it is called
OPSET = 28  # of ONNX's own operators, the newest whose meaning is known here: onnx 1.23
ATTRIBUTE_ITEMS = 1_000_000  # numbers in one attribute of an ONNX node; more stand in tensors
METADATA_BYTES = (
    2**24
)  # one text of an ONNX model's metadata, or of an attribute; torch's exporter writes stack traces
GRAPH_FIELDS = 100_000  # of an ONNX graph, looked at for weights that are no initialisers
WIRE_FIELDS = 2_000_000  # of a protocol buffer; the largest exported graphs have some 100,000 nodes
MSGPACK_ITEMS = 5_000_000  # names, numbers and tables of a Flax file
MEMBERS = 100  # of a pipeline; the largest have about ten
SHARDS = 20_000  # the largest public checkpoints have a few hundred
PACKAGE_DEPTH = 6  # folders below an installed package where models are looked for
PACKAGE_ENTRIES = 50_000  # files and folders looked at there
HUB_NAME_CHARACTERS = 96  # the hub's own limit on each part of an id
HUB_REVISION_CHARACTERS = 255
HUB_TAG_CHARACTERS = 128  # of what the hub names the content of a file by; a SHA-256 has 64
REMOTE_BYTES = (
    2**28
)  # of one remote file that are fetched to read its header; the longest header and a pickle fit in
INLINE_BYTES = 4_096  # of one bytes object or integer inside JSON; a longer one is stored as a tensor
INLINE_CHARACTERS = 65_536  # of one string there
NESTED = 48  # levels in one part of a stored structure; json refuses under 1,000, deeper values are split into parts
RAW_DIMENSIONS = 64  # of a tensor stored as bytes, its shape beside it; NumPy has as many
KEY_DEPTH = 32  # tuples within tuples that are the key of a dict
TYPE_DEPTH = 16  # fields within fields of a structured NumPy type
FLOW_NODES = 5_000  # of one flow's syntax tree in a saved architecture; the largest shipped flow has 335
FLOW_CALLS = 20_000  # of blocks by blocks, followed from the root; the largest model read so far has 200
LEAF_HEADER_BYTES = (
    100_000_000  # of what is said about one leaf of a tree: a structured type, a large integer
)
READ_BYTES = 2**24  # asked of a stream at a time: memory grows with what is there, not with what is claimed
TOLERANCE = (
    1e-4  # of a difference, as a share of max(1, largest value): float32 on other kernels, layers deep
)
