# cmake --install, and cpack: .tar.gz and .deb with every library but glibc (docs/install.md).
#
# The libraries are a component of their own: `cmake --install` alone takes those of the machine.
# All live in PREFIX/lib, where LLVM's own libraries look for each other, so the folder can be moved;
# therefore the .deb installs into /opt/tbc.

# DT_RPATH, unlike DT_RUNPATH, holds for the libraries of libraries too.
function(tbc_relocatable target)
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
endfunction()

foreach(program tbc tbc-run)
  if(TARGET ${program})
    tbc_relocatable(${program})
  endif()
endforeach()

if(TARGET tbc)
  # Links compiled kernels.
  find_program(TBC_LLD NAMES ld.lld HINTS ${LLVM_TOOLS_BINARY_DIR} NO_DEFAULT_PATH)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
  set(_glibc "^(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util)[.]so)")
  install(CODE "
    file(GET_RUNTIME_DEPENDENCIES RESOLVED_DEPENDENCIES_VAR found
      EXECUTABLES $<TARGET_FILE:tbc> $<TARGET_FILE:tbc-run> ${TBC_LLD}
      PRE_EXCLUDE_REGEXES \"${_glibc}\")
    foreach(library IN LISTS found)
      file(INSTALL \${library} DESTINATION \${CMAKE_INSTALL_PREFIX}/lib FOLLOW_SYMLINK_CHAIN)
    endforeach()
    get_filename_component(linker ${TBC_LLD} REALPATH)
    file(INSTALL \${linker} DESTINATION \${CMAKE_INSTALL_PREFIX}/bin RENAME ld.lld USE_SOURCE_PERMISSIONS)
    execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/use_rpath.py
      \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/ld.lld COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT libraries EXCLUDE_FROM_ALL)
endif()

set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME tbc)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "the maintainers of tbc")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Plans how to train an ONNX model on a cluster, and trains it")
set(CPACK_PACKAGE_FILE_NAME tbc-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /opt/tbc)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36)")
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};tbc;ALL;/;${PROJECT_BINARY_DIR};tbc;libraries;/")
include(CPack)
