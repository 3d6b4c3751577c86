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
tbc_headers(tbc-codegen-headers HEADERS ${PROJECT_SOURCE_DIR}/codegen/CodegenHeaders.h)
target_compile_definitions(tbc-codegen-headers PRIVATE ${TBC_LLVM_DEFS})
if(TBC_BUILD_TESTS)
  tbc_headers(tbc-mlir-test-headers HEADERS ${PROJECT_SOURCE_DIR}/ir/MlirHeaders.h <gmock/gmock.h> <gtest/gtest.h>
    DEPS GTest::gtest GTest::gmock)
  target_compile_definitions(tbc-mlir-test-headers PRIVATE ${TBC_LLVM_DEFS})
  target_compile_options(tbc-mlir-test-headers PRIVATE ${TBC_TEST_OPTIONS})
endif()

# tbc_link_static_mlir(TARGET)
#
# Links MLIR and LLVM as archives, only the sections that are used, without debug information. The imported
# targets of Debian's archives name the shared LLVM, so the archives are given by file.
function(tbc_link_static_mlir target)
  file(GLOB archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
  if(NOT archives)
    message(FATAL_ERROR "There are no archives of MLIR in ${LLVM_LIBRARY_DIR}; install llvm-19-dev and libmlir-19-dev")
  endif()
  # LLVM's code generator compresses with them. Debian's LLVM brings zstd without its headers.
  find_library(TBC_ZLIB z REQUIRED)
  find_library(TBC_ZSTD NAMES zstd libzstd.so.1 REQUIRED)
  set_target_properties(${target} PROPERTIES TBC_STATIC_MLIR ON)
  target_link_libraries(${target} PRIVATE -Wl,--start-group ${archives} -Wl,--end-group ${TBC_ZLIB} ${TBC_ZSTD})
  target_link_options(${target} PRIVATE -Wl,--gc-sections -Wl,--as-needed -Wl,-s)
endfunction()
