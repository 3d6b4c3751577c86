# Finds LLVM/MLIR 19 and sets up TableGen. Debian keeps both in a private prefix; its version file wants
# major.minor to match exactly.

find_package(MLIR 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)
separate_arguments(TBC_LLVM_DEFS NATIVE_COMMAND ${LLVM_DEFINITIONS})
# mlir_tablegen reads the directory property, not a target's include directories.
include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})

# The headers that everything with MLIR includes, compiled once.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/mlir-headers.cpp CONTENT "")
add_library(tbc-mlir-headers STATIC ${PROJECT_BINARY_DIR}/mlir-headers.cpp)
target_compile_definitions(tbc-mlir-headers PRIVATE ${TBC_LLVM_DEFS})
target_precompile_headers(tbc-mlir-headers PRIVATE ${PROJECT_SOURCE_DIR}/ir/MlirHeaders.h)
