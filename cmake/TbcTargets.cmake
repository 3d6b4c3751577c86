# Helpers that every folder uses to declare its targets.

add_compile_options(-Wall -Wextra -Wno-unused-parameter)
if(TBC_SANITIZE)
  string(REPLACE ";" "," _tbc_sanitize "${TBC_SANITIZE}")
  add_compile_options(-fsanitize=${_tbc_sanitize} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${_tbc_sanitize})
endif()
include_directories(${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

# tbc_library(NAME [MLIR] SOURCES .. [DEPS ..] [TABLEGEN ..])
#
# A static library. MLIR: compiled and linked against the shared MLIR and LLVM. TABLEGEN: targets whose
# generated headers the sources include.
function(tbc_library name)
  cmake_parse_arguments(A "MLIR" "" "SOURCES;DEPS;TABLEGEN" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC ${A_DEPS})
  if(A_MLIR)
    target_compile_definitions(${name} PUBLIC ${TBC_LLVM_DEFS})
    target_include_directories(${name} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
    target_link_libraries(${name} PUBLIC MLIR LLVM)
  endif()
  if(A_TABLEGEN)
    add_dependencies(${name} ${A_TABLEGEN})
  endif()
endfunction()

# tbc_test(NAME SOURCES .. [DEPS ..])
#
# A GoogleTest program; every TEST in it becomes a CTest test named NAME.Suite.Case. Tests read their
# data from TBC_SOURCE_DIR.
function(tbc_test name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gtest GTest::gtest_main GTest::gmock)
  target_compile_definitions(${name} PRIVATE TBC_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
endfunction()
