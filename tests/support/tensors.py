"""Safetensors files, written and read by the format's definition: the size of a header, the header
as JSON, then the bytes of all tensors. A tensor is (type, shape, bytes)."""
import json
import struct

LETTERS = {"U8": "B", "I64": "q", "F32": "f"}  # of the module struct


def write(path, tensors):
    """Writes {name: (type, shape, values)}; values are bytes, or a list of numbers."""
    header, body = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        if not isinstance(values, (bytes, bytearray)):
            values = struct.pack(f"<{len(values)}{LETTERS[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [len(body), len(body) + len(values)]}
        body += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def read(path):
    """Reads {name: (type, shape, bytes)}."""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"],
                   data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
            for name, entry in header.items()}


def numbers(tensor):
    """The values of a tensor."""
    dtype, _, data = tensor
    letter = LETTERS[dtype]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data))
