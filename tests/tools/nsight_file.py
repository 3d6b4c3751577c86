"""Exports of Nsight Systems, as `nsys export --type sqlite` writes them.

Tables and columns as in NVIDIA's "SQLite Export Schema Reference" (Nsight Systems 2024), those that a
profile with --trace=cuda,nvtx has.
"""

import sqlite3

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
  color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,
  int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER,
  jsonText TEXT, binaryData TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,
  registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
  blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
  dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,
  gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER,
  srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER,
  graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER);
"""
PUSH_POP = 59  # NvtxPushPopRange
RUNTIME = 1  # TRACE_PROCESS_EVENT_CUDA_RUNTIME


class NsightFile:
    """An export; times are in nanoseconds of one clock. `with` closes it."""

    def __init__(self, path, without=()):
        path.unlink(missing_ok=True)
        self.base = sqlite3.connect(path)
        self.base.executescript(SCHEMA)
        self.without, self.strings, self.calls = without, {}, 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for table in self.without:
            self.base.execute(f"DROP TABLE {table}")
        self.base.commit()
        self.base.close()

    def insert(self, table, **row):
        names = [name for _, name, _, required, _, _ in self.base.execute(f"PRAGMA table_info({table})") if required or name in row]
        self.base.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", [row.get(n, 0) for n in names])

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.insert("StringIds", id=self.strings[text], value=text)
        return self.strings[text]

    @staticmethod
    def process(number):
        """The high byte is of the host, the low 24 bits of the thread."""
        return (1 << 56) + (number << 24)

    def range(self, text, begin, end, process=100, thread=1, registered=False):
        name = {"textId": self.string(text)} if registered else {"text": text}
        self.insert("NVTX_EVENTS", start=begin, end=end, eventType=PUSH_POP, globalTid=self.process(process) + thread, **name)

    def launch(self, begin, process, thread):
        """Returns the row of a call that launches work. Correlation ids are unique within a process alone."""
        self.calls += 1
        self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", start=begin, end=begin + 4000, eventClass=RUNTIME, globalTid=self.process(process) + thread,
                    correlationId=self.calls, nameId=self.string("cudaLaunchKernel_v7000"))  # fmt: skip
        return {"correlationId": self.calls, "globalPid": self.process(process)}

    def kernel(self, name, begin, end, launched, process=100, thread=1, device=0, stream=7):
        self.insert("CUPTI_ACTIVITY_KIND_KERNEL", start=begin, end=end, deviceId=device, contextId=1, streamId=stream, demangledName=self.string(name),
                    shortName=self.string(name.split("(")[0]), **self.launch(launched, process, thread))  # fmt: skip

    def copy(self, size, begin, end, launched, process=100, thread=1, device=0, stream=13):
        self.insert("CUPTI_ACTIVITY_KIND_MEMCPY", start=begin, end=end, deviceId=device, contextId=1, streamId=stream, bytes=size, copyKind=1,
                    **self.launch(launched, process, thread))  # fmt: skip
