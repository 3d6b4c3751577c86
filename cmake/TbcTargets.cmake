# Helpers that every folder uses to declare its targets.

add_compile_options(-Wall -Wextra -Wno-unused-parameter)
add_compile_options(-fPIC) # programs too, so that they can share the precompiled headers

# ccache where it is installed. Precompiled headers need the two leniencies and the flag.
find_program(TBC_CCACHE ccache)
if(TBC_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TBC_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()
if(TBC_SANITIZE)
  string(REPLACE ";" "," _tbc_sanitize "${TBC_SANITIZE}")
  add_compile_options(-fsanitize=${_tbc_sanitize} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(TBC_BUILD_COMPILER)
    # Debian's LLVM and MLIR have no run-time type information, which these two read.
    add_compile_options(-fno-sanitize=vptr,function)
  endif()
  add_link_options(-fsanitize=${_tbc_sanitize})
endif()
include_directories(${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

# tbc_headers(NAME HEADERS .. [DEPS ..])
#
# Headers that many targets include, compiled once; targets take them by REUSE_FROM. No header of ours
# belongs here: a change of it would compile everything again. Sources still include what they use:
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without.
function(tbc_headers name)
  cmake_parse_arguments(A "" "" "HEADERS;DEPS" ${ARGN})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} STATIC ${PROJECT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE ${A_DEPS})
  target_precompile_headers(${name} PRIVATE ${A_HEADERS})
endfunction()

set(_standard_headers <algorithm> <cstdint> <functional> <map> <memory> <optional> <set> <string> <utility> <vector>)
tbc_headers(tbc-standard-headers HEADERS ${_standard_headers})

# tbc_library(NAME [MLIR] [HEADERS ..] SOURCES .. [DEPS ..] [TABLEGEN ..])
#
# A static library. MLIR: compiled and linked against the shared MLIR and LLVM; a program with the property
# TBC_STATIC_MLIR links their archives instead (tbc_link_static_mlir). HEADERS: the precompiled headers, where
# they are others than those of all such libraries. TABLEGEN: targets whose generated headers the sources include.
function(tbc_library name)
  cmake_parse_arguments(A "MLIR" "HEADERS" "SOURCES;DEPS;TABLEGEN" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC ${A_DEPS})
  if(A_MLIR)
    target_compile_definitions(${name} PUBLIC ${TBC_LLVM_DEFS})
    target_include_directories(${name} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
    target_link_libraries(${name} PUBLIC $<$<NOT:$<BOOL:$<TARGET_PROPERTY:TBC_STATIC_MLIR>>>:MLIR;LLVM>)
    if(NOT A_HEADERS)
      set(A_HEADERS tbc-mlir-headers)
    endif()
    target_precompile_headers(${name} REUSE_FROM ${A_HEADERS})
  else()
    target_precompile_headers(${name} REUSE_FROM tbc-standard-headers)
  endif()
  if(A_TABLEGEN)
    add_dependencies(${name} ${A_TABLEGEN})
  endif()
endfunction()

# Test code takes long to compile and little to run, so it is not optimised: that halves what it costs to
# build. Its precompiled headers need the same option.
set(TBC_TEST_OPTIONS -O0)

# tbc_test(NAME [MLIR] [OPTIMIZED] SOURCES .. [DEPS ..])
#
# A GoogleTest program; every TEST in it becomes a CTest test named NAME.Suite.Case. Tests read their
# data from TBC_SOURCE_DIR. OPTIMIZED: for tests that compute much themselves, as brute force does. Inline
# functions that the product shares with a test are linked once, in the test's form.
function(tbc_test name)
  cmake_parse_arguments(A "MLIR;OPTIMIZED" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  if(A_OPTIMIZED)
    target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  else()
    target_compile_options(${name} PRIVATE ${TBC_TEST_OPTIONS})
  endif()
  # Those of the product are optimised.
  if(A_MLIR AND A_OPTIMIZED)
    target_precompile_headers(${name} REUSE_FROM tbc-mlir-headers)
  elseif(A_MLIR)
    target_precompile_headers(${name} REUSE_FROM tbc-mlir-test-headers)
  elseif(A_OPTIMIZED)
    target_precompile_headers(${name} REUSE_FROM tbc-standard-headers)
  else()
    target_precompile_headers(${name} REUSE_FROM tbc-test-headers)
  endif()
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gtest GTest::gtest_main GTest::gmock)
  target_compile_definitions(${name} PRIVATE TBC_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
endfunction()
