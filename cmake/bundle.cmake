# The programs of a bundle, in build/PRESET/bundle (scripts/bundle, docs/decisions/0018). They find
# their libraries beside themselves, whatever LD_LIBRARY_PATH says: DT_RPATH, not DT_RUNPATH. The
# code of libcrypto is in the program: a library of the site may need a newer one in this process.
add_custom_target(bundled ALL DEPENDS program)
set(BUNDLED_LIBRARIES ${LIBS_LINK_LIBRARIES})
list(TRANSFORM BUNDLED_LIBRARIES REPLACE "libcrypto\\.so$" "libcrypto.a")

# BUNDLED_FIRST: libraries that need the usual ones.
function(add_bundled name)
  add_executable(bundled_${name} EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(bundled_${name} PRIVATE include src)
  target_compile_options(bundled_${name} PRIVATE -fvisibility=hidden)
  target_link_libraries(bundled_${name} PRIVATE ${BUNDLED_FIRST} ${BUNDLED_LIBRARIES}
    Threads::Threads OpenMP::OpenMP_C ${DNNL_LIBRARY} m dl)
  target_link_options(bundled_${name} PRIVATE LINKER:--disable-new-dtags LINKER:--exclude-libs,ALL
                                              LINKER:--build-id=none)
  # A name of its own, so that `ninja NAME` still builds the program in bin/.
  set_target_properties(bundled_${name} PROPERTIES OUTPUT_NAME ${name} SUFFIX .bundled
    ENABLE_EXPORTS ON
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bundle
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN/../lib")
  add_dependencies(bundled bundled_${name})
endfunction()

add_bundled(trireme ${PROGRAM_SOURCES} $<TARGET_OBJECTS:rooms>)

# What tests/gpu/test-gpu runs beside the program. They take from the rooms what they need.
if(BUILDS_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  file(GLOB families CONFIGURE_DEPENDS tests/support/op_families*.c)
  add_library(bundled_support OBJECT EXCLUDE_FROM_ALL ${families} tests/support/op_compare.c
    tests/support/op_session.c)
  set(programs bundled_support)
  set(BUNDLED_FIRST -Wl,--as-needed $<TARGET_FILE:trireme_static> PkgConfig::CMOCKA)
  foreach(test device cuda_failure cuda_graphs cuda_images cuda_libraries cuda_nccl cuda_ops
          cuda_rows)
    add_bundled(unit_test_${test} tests/unit/test_${test}.c $<TARGET_OBJECTS:bundled_support>)
    add_dependencies(bundled_unit_test_${test} trireme_static)
    list(APPEND programs bundled_unit_test_${test})
  endforeach()
  foreach(program ${programs}) # no path of this tree is to be in them
    target_include_directories(${program} PRIVATE include src tests)
    target_compile_definitions(${program} PRIVATE TRIREME_SOURCE_DIR="" TRIREME_BUILD_DIR="")
    target_compile_options(${program} PRIVATE -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
  endforeach()

  # A GPU that fails: tests/gpu/trap.c.
  add_library(test_gpu_trap MODULE tests/gpu/trap.c)
  target_include_directories(test_gpu_trap PRIVATE include src)
  target_compile_options(test_gpu_trap PRIVATE -fvisibility=hidden
                                               -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
  set_target_properties(test_gpu_trap PROPERTIES OUTPUT_NAME cuda PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/trap)
  add_dependencies(bundled test_gpu_trap)
endif()
