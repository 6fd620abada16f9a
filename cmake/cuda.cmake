# The module `cuda`: our kernels and the calls of CUDA, compiled by nvcc (of the PATH, $CUDA_HOME or
# /usr/local/cuda) for GPUs of compute capability 8.0 and 9.0 and, as PTX, for later ones. It links
# the CUDA runtime statically, and nothing else of CUDA. It takes longer to compile than all the
# rest, so TRIREME_CUDA=AUTO builds it only where a GPU is.
set(CUDA_FOLDER ${CMAKE_SOURCE_DIR}/src/device/cuda/module)
file(GLOB CUDA_SOURCES CONFIGURE_DEPENDS ${CUDA_FOLDER}/*.cu)
file(GLOB CUDA_HEADERS CONFIGURE_DEPENDS ${CUDA_FOLDER}/*.h ${CUDA_FOLDER}/../params*.h
     ${CUDA_FOLDER}/../runtime.h)
find_program(NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)

if(NVCC)
  get_filename_component(CUDA_HOME ${NVCC} REALPATH)
  get_filename_component(CUDA_HOME ${CUDA_HOME}/../.. ABSOLUTE)
  find_library(CUDART cudart_static HINTS ${CUDA_HOME}/lib64 ${CUDA_HOME}/targets/x86_64-linux/lib)
endif()
set(why "")
if(TRIREME_CUDA STREQUAL AUTO AND NOT EXISTS /dev/nvidiactl AND NOT EXISTS /dev/dxg)
  set(why "no GPU of NVIDIA is here (make build CUDA=1 builds it all the same)")
elseif(NOT NVCC OR NOT CUDART)
  set(why "no nvcc with its libraries was found")
endif()
if(TRIREME_CUDA AND (NOT why OR NOT TRIREME_CUDA STREQUAL AUTO))
  if(why)
    message(FATAL_ERROR "TRIREME_CUDA=${TRIREME_CUDA}: ${why}")
  endif()
  set(objects)
  foreach(source ${CUDA_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${NVCC} -std=c++17 -O3 -Xcompiler
              -fPIC,-fvisibility=hidden -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
              -gencode arch=compute_80,code=sm_80
              -gencode arch=compute_90,code=[sm_90,compute_90] -c ${source} -o ${object}
      DEPENDS ${source} ${CUDA_HEADERS} COMMENT "Building CUDA object ${name}.o" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  add_library(module_cuda MODULE ${CUDA_FOLDER}/entry.c ${objects})
  target_include_directories(module_cuda PRIVATE include src)
  target_compile_options(module_cuda PRIVATE -fvisibility=hidden)
  target_link_libraries(module_cuda PRIVATE ${CUDART} stdc++ Threads::Threads dl rt)
  target_link_options(module_cuda PRIVATE LINKER:--no-undefined)
  set_target_properties(module_cuda PROPERTIES OUTPUT_NAME cuda PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/trireme)
  install(TARGETS module_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme)
  add_dependencies(program module_cuda)
else()
  if(TRIREME_CUDA)
    message(STATUS "without CUDA: ${why}")
  endif()
  # One of an earlier configuration would still be loaded, and looked for by scripts/bundle.
  file(REMOVE ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/trireme/cuda.so)
endif()
