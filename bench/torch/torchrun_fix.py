"""torchrun, for PyTorch 1.13 under Python 3.11.

There Std.from_str("0") returns None, since iterating a Flag skips 0, and torchrun dies. This mends
that and runs torchrun unchanged.
"""

from torch.distributed.elastic.multiprocessing import api
from torch.distributed.run import main

original = getattr(api.Std.from_str, "__func__", None)
if original:
    api.Std.from_str = classmethod(
        lambda cls, value: api.Std.NONE if value == "0" else original(cls, value)
    )

if __name__ == "__main__":
    main()
