# Modules: what the program loads when a run needs it (src/base/module.h). One that needs a library
# that this machine lacks is left out. Installed, it looks for libraries in a folder of its name
# first, where bundles have them (scripts/bundle).
function(add_module name folder library)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.c
                                      ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
  add_library(module_${name} MODULE ${sources})
  target_include_directories(module_${name} PRIVATE include src)
  target_compile_options(module_${name} PRIVATE -fvisibility=hidden)
  target_link_libraries(module_${name} PRIVATE ${library})
  target_link_options(module_${name} PRIVATE LINKER:--disable-new-dtags)
  if(NOT TRIREME_FUZZ) # there, what checks the code is in the program
    target_link_options(module_${name} PRIVATE LINKER:--no-undefined)
  endif()
  set_target_properties(module_${name} PROPERTIES OUTPUT_NAME ${name} PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/trireme)
  set_target_properties(module_${name} PROPERTIES INSTALL_RPATH "\$ORIGIN/${name}")
  install(TARGETS module_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme)
  add_dependencies(program module_${name})
endfunction()

# A module that needs one package of pkg-config. LACK: what is left out without the package, and
# what brings it.
function(add_package_module name folder package lack)
  pkg_check_modules(${name} IMPORTED_TARGET ${package})
  if(${name}_FOUND)
    add_module(${name} ${folder} PkgConfig::${name})
  else()
    message(STATUS "${lack}")
  endif()
endfunction()

# What the module needs of libarchive becomes part of it: the shared library needs ten others, for
# formats that nobody reads here.
find_library(ARCHIVE_LIBRARY libarchive.a REQUIRED)
pkg_check_modules(DECOMPRESSION REQUIRED IMPORTED_TARGET zlib libzstd)
add_module(archive format/archive "${ARCHIVE_LIBRARY};PkgConfig::DECOMPRESSION")
target_link_options(module_archive PRIVATE LINKER:--exclude-libs,ALL LINKER:--gc-sections)

add_package_module(hdf5 format/hdf5 hdf5 "without data.name=hdf5: libhdf5-dev is not installed")
add_package_module(download data/download libcurl
  "without `trireme data get`: libcurl4-openssl-dev is not installed")
add_package_module(lmdb format/lmdb_write lmdb
  "without data convert --to lmdb: liblmdb-dev is not installed")
add_package_module(ucx comm/ucx ucx>=1.12 "without comm.backend=ucx: libucx-dev is not installed")

# Arrow's libraries and headers: Debian has none, Python's package pyarrow has them.
set(TRIREME_PYARROW ${CMAKE_SOURCE_DIR}/build/pyarrow/pyarrow CACHE PATH
    "folder of Python's package pyarrow, for data.name=parquet")
file(GLOB ARROW_LIBRARY ${TRIREME_PYARROW}/libarrow.so.*)
file(GLOB PARQUET_LIBRARY ${TRIREME_PYARROW}/libparquet.so.*)
if(ARROW_LIBRARY AND PARQUET_LIBRARY)
  enable_language(CXX)
  add_module(parquet format/parquet "${PARQUET_LIBRARY};${ARROW_LIBRARY}")
  target_include_directories(module_parquet SYSTEM PRIVATE ${TRIREME_PYARROW}/include)
  set_target_properties(module_parquet PROPERTIES CXX_STANDARD 17
    INSTALL_RPATH "\$ORIGIN/parquet:${TRIREME_PYARROW}")
else()
  message(STATUS "without data.name=parquet: scripts/install-deps --parquet brings Arrow's library")
endif()

find_package(MPI COMPONENTS C)
if(MPI_C_FOUND AND MPI_C_VERSION VERSION_GREATER_EQUAL 3.0)
  add_module(mpi comm/mpi MPI::MPI_C)
else()
  message(STATUS "without comm.backend=mpi: no MPI 3 is installed")
endif()
