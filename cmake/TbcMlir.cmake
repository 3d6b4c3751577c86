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

tbc_headers(tbc-mlir-headers HEADERS ${PROJECT_SOURCE_DIR}/ir/MlirHeaders.h)
target_compile_definitions(tbc-mlir-headers PRIVATE ${TBC_LLVM_DEFS})
if(TBC_BUILD_TESTS)
  tbc_headers(tbc-mlir-test-headers HEADERS ${PROJECT_SOURCE_DIR}/ir/MlirHeaders.h <gmock/gmock.h> <gtest/gtest.h>
    DEPS GTest::gtest GTest::gmock)
  target_compile_definitions(tbc-mlir-test-headers PRIVATE ${TBC_LLVM_DEFS})
endif()
