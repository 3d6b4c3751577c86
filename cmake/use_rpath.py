"""usage: use_rpath.py FILE

Makes the DT_RUNPATH of an ELF file of 64 bits a DT_RPATH, in place: DT_RPATH holds for the libraries
of libraries too. Fails if the file has no DT_RUNPATH and no DT_RPATH.
"""

import struct
import sys

PT_DYNAMIC, DT_NULL, DT_RPATH, DT_RUNPATH = 2, 0, 15, 29


def entries(content):
    """Yields (offset, tag) of the entries of the dynamic section."""
    if content[:6] != b"\x7fELF\x02\x01":
        sys.exit(f"{sys.argv[1]} is no little-endian ELF file of 64 bits")
    headers, = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    for header in range(headers, headers + size * count, size):
        kind, = struct.unpack_from("<I", content, header)
        if kind != PT_DYNAMIC:
            continue
        offset, = struct.unpack_from("<Q", content, header + 8)
        while (tag := struct.unpack_from("<q", content, offset)[0]) != DT_NULL:
            yield offset, tag
            offset += 16


with open(sys.argv[1], "r+b") as file:
    found = list(entries(file.read()))
    places = [offset for offset, tag in found if tag == DT_RUNPATH]
    if not places and DT_RPATH not in [tag for _, tag in found]:
        sys.exit(f"{sys.argv[1]} has no DT_RUNPATH")
    for offset in places:
        file.seek(offset)
        file.write(struct.pack("<q", DT_RPATH))
