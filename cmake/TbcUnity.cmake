# TBC_UNITY: several sources of a library or a test are compiled as one, but for those of runtime and tools, whose
# objects are taken one by one; with sanitizers those of any target. This saves work in a build from nothing.
#
# Sources that are named alike inside their unnamed namespaces cannot share. unity_apart.txt lists one of each
# such pair; `tools/lint/unity` finds them. A build folder may have a list of its own, of the same name.
# Included last: source properties are set in every folder that may compile the source.

# tbc_folders(RESULT FOLDER): FOLDER and all folders below it that CMake entered.
function(tbc_folders result folder)
  get_property(children DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  set(all ${folder})
  foreach(child IN LISTS children)
    tbc_folders(below ${child})
    list(APPEND all ${below})
  endforeach()
  set(${result} ${all} PARENT_SCOPE)
endfunction()

if(TBC_UNITY)
  set(_lists ${CMAKE_CURRENT_LIST_DIR}/unity_apart.txt ${PROJECT_BINARY_DIR}/unity_apart.txt)
  tbc_folders(_folders ${PROJECT_SOURCE_DIR})
  foreach(list IN LISTS _lists)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
    if(EXISTS ${list})
      file(STRINGS ${list} _apart REGEX "^[^#]")
      list(TRANSFORM _apart PREPEND ${PROJECT_SOURCE_DIR}/)
      set_source_files_properties(${_apart} DIRECTORY ${_folders} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endif()
