//===- Allocator.cpp - Settings of jemalloc --------------------------------===//
//
// Linked with jemalloc (TBC_JEMALLOC), which reads this name when it starts.
//
//===----------------------------------------------------------------------===//

/// A search frees much and soon asks for it again: freed pages go back to the kernel only after a
/// minute without use. Returned after jemalloc's ten seconds, they cost up to a fourth of the
/// CPU time of a search of minutes, in page faults.
extern "C" const char *malloc_conf;
extern "C" const char *malloc_conf = "dirty_decay_ms:60000";
