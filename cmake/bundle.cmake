# The programs of a bundle, in build/PRESET/bundle (scripts/bundle, docs/decisions/0018). They find
# their libraries beside themselves, whatever LD_LIBRARY_PATH says: DT_RPATH, not DT_RUNPATH. The
# code of libcrypto is in the program: a library of the site may need a newer one in this process.
add_custom_target(bundled ALL DEPENDS program)
set(BUNDLED_LIBRARIES ${LIBS_LINK_LIBRARIES})
list(TRANSFORM BUNDLED_LIBRARIES REPLACE "libcrypto\\.so$" "libcrypto.a")

function(add_bundled name)
  add_executable(bundled_${name} EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(bundled_${name} PRIVATE include src)
  target_compile_options(bundled_${name} PRIVATE -fvisibility=hidden)
  target_link_libraries(bundled_${name} PRIVATE ${BUNDLED_LIBRARIES} Threads::Threads
                                                OpenMP::OpenMP_C ${DNNL_LIBRARY} m dl)
  target_link_options(bundled_${name} PRIVATE LINKER:--disable-new-dtags LINKER:--exclude-libs,ALL
                                              LINKER:--build-id=none)
  set_target_properties(bundled_${name} PROPERTIES OUTPUT_NAME ${name} ENABLE_EXPORTS ON
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bundle
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN/../lib")
  add_dependencies(bundled bundled_${name})
endfunction()

add_bundled(trireme src/cli/main.c $<TARGET_OBJECTS:rooms>)
