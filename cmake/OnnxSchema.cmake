# Generates the C++ classes of the ONNX file format from the pinned schema.
#
# Defines the target tbc-onnx-proto. Link it and write
#     #include "onnx/onnx.pb.h"        // onnx::ModelProto and friends, lite runtime
#
# The schema lies in a cache outside the build folders (~/.cache/tbc, or the environment's TBC_CACHE_DIR),
# where `./bootstrap` or the first configure puts it; afterwards nothing here needs the network.

find_package(Protobuf 3.21 REQUIRED)
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

set(_fetch ${PROJECT_SOURCE_DIR}/cmake/fetch_onnx_schema.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_fetch})
execute_process(COMMAND ${Python3_EXECUTABLE} ${_fetch} OUTPUT_VARIABLE _schema_dir
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _failed)
if(_failed)
  message(FATAL_ERROR "The ONNX schema is missing. Run ./bootstrap once while online, or set "
                      "TBC_BUILD_COMPILER=OFF for a build without the compiler.")
endif()

set(_generated ${PROJECT_BINARY_DIR}/onnx/onnx.pb.cc ${PROJECT_BINARY_DIR}/onnx/onnx.pb.h)
add_custom_command(
  OUTPUT ${_generated}
  COMMAND protobuf::protoc --proto_path=${_schema_dir} --cpp_out=${PROJECT_BINARY_DIR} onnx/onnx.proto
  DEPENDS ${_schema_dir}/onnx/onnx.proto
  COMMENT "Generating C++ from the ONNX schema"
  VERBATIM)
add_library(tbc-onnx-proto STATIC ${_generated})
target_include_directories(tbc-onnx-proto SYSTEM PUBLIC ${PROJECT_BINARY_DIR})
target_link_libraries(tbc-onnx-proto PUBLIC protobuf::libprotobuf-lite)
target_compile_options(tbc-onnx-proto PRIVATE -w) # generated code
