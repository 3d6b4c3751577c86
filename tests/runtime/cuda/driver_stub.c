// Stands for libcuda.so.1 where cuDNN prepares plans without a GPU: there is no device (every call
// that asks for one fails, as with the stub of CUDA's toolkit), but what cuDNN compiles can be
// "loaded", which it tries before it says that a plan is ready.

enum { success = 0, stubLibrary = 34 };

int cuInit(unsigned flags) { return (void)flags, stubLibrary; }
int cuDriverGetVersion(int *version) { return *version = 13000, success; }
int cuDeviceGetCount(int *count) { return *count = 0, stubLibrary; }
int cuGetErrorString(int code, const char **text) { return (void)code, *text = "stub", success; }
int cuGetErrorName(int code, const char **text) { return (void)code, *text = "stub", success; }

static int something;
int cuLibraryLoadData(void **library, const void *code, void *jitOptions, void *jitValues,
                      unsigned numJitOptions, void *options, void *values, unsigned numOptions) {
  (void)code, (void)jitOptions, (void)jitValues, (void)numJitOptions;
  (void)options, (void)values, (void)numOptions;
  return *library = &something, success;
}
int cuLibraryUnload(void *library) { return (void)library, success; }
int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  (void)library, (void)name;
  return *kernel = &something, success;
}

// Looked for, and not called.
#define TBC_REFUSE(name)                                                                           \
  int name(void) { return stubLibrary; }
TBC_REFUSE(cuCtxGetCurrent)
TBC_REFUSE(cuCtxGetLimit)
TBC_REFUSE(cuCtxPopCurrent)
TBC_REFUSE(cuCtxPushCurrent)
TBC_REFUSE(cuDeviceGet)
TBC_REFUSE(cuKernelGetAttribute)
TBC_REFUSE(cuKernelSetAttribute)
TBC_REFUSE(cuLaunchCooperativeKernel)
TBC_REFUSE(cuLaunchKernel)
TBC_REFUSE(cuLaunchKernelEx)
TBC_REFUSE(cuLibraryLoadFromFile)
TBC_REFUSE(cuLinkAddData)
TBC_REFUSE(cuLinkComplete)
TBC_REFUSE(cuLinkCreate)
TBC_REFUSE(cuLinkDestroy)
TBC_REFUSE(cuOccupancyMaxPotentialClusterSize)
TBC_REFUSE(cuStreamGetCtx)
