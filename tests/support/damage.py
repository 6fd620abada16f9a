"""Damages files, for tests that expect the damage to be found."""


def flip(path, offset, bit):
    """Flips one bit of the byte at `offset`."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))
