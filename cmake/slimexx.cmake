# Flags and the two functions that every module uses.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(SLX_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
if(SLX_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
endif()

find_program(SLX_CCACHE ccache)
if(SLX_CCACHE)
  # Clones in other folders share cached objects.
  set(SLX_CCACHE ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${SLX_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SLX_CCACHE})
endif()
find_program(SLX_MOLD mold)
if(SLX_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(slx_flags INTERFACE)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(slx_flags INTERFACE -Wno-restrict)  # false positives on std::string, GCC PR105651
endif()
# Not for users: other compilers and libraries give other warnings.
option(SLX_WERROR "Make warnings errors" OFF)
target_compile_options(slx_flags INTERFACE -Wall -Wextra -Wshadow $<$<BOOL:${SLX_WERROR}>:-Werror>
  # One rounding per written operation: a contracted multiply-add in one copy of a loop and not in
  # another would give one value two bit patterns (docs/numerics.md).
  -ffp-contract=off)
target_include_directories(slx_flags INTERFACE ${PROJECT_SOURCE_DIR}/include)
if(SLX_SANITIZE)
  add_compile_options(-fsanitize=${SLX_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SLX_SANITIZE})
endif()
if(SLX_BUILD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(PkgConfig REQUIRED)

# Headers take a third of the time of a host compilation. If the unnamed namespaces of two files share a name,
# slx_compile_alone must list one of them.
option(SLX_UNITY "Compile a module's sources a dozen at a time" OFF)
function(slx_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# slx_add_module(NAME SOURCES a.cpp ... DEPENDS base ... [LIBRARIES lib ...]): static library slx_NAME.
# LIBRARIES are private: the only third-party headers in include/slimexx are fmt/core and json_fwd.
function(slx_add_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_library(slx_${name} STATIC ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPENDS PREPEND slx_)
  target_link_libraries(slx_${name} PUBLIC slx_flags ${ARG_DEPENDS} fmt::fmt PRIVATE ${ARG_LIBRARIES} nlohmann_json::nlohmann_json)
  target_include_directories(slx_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(slx_${name} PROPERTIES UNITY_BUILD ${SLX_UNITY} UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# slx_add_test(MODULE SOURCES a_test.cpp ... [DEPENDS module ...] [LABEL unit]): one GoogleTest program
# tests_MODULE whose cases CTest lists one by one. tests/test_paths.h has the paths of test data.
function(slx_add_test module)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  add_executable(tests_${module} ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPENDS PREPEND slx_)
  target_link_libraries(tests_${module} PRIVATE slx_flags test_paths ${ARG_DEPENDS} ${ARG_LIBRARIES} nlohmann_json::nlohmann_json GTest::gtest GTest::gtest_main)
  target_include_directories(tests_${module} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(tests_${module} PRIVATE $<$<BOOL:${SLX_WITH_CUDA}>:SLX_WITH_CUDA>)
  if(ARG_LABEL STREQUAL gpu)
    set(unity OFF)
  else()
    set(unity ${SLX_UNITY})
  endif()
  set_target_properties(tests_${module} PROPERTIES UNITY_BUILD ${unity} UNITY_BUILD_BATCH_SIZE 12)
  gtest_discover_tests(tests_${module} TEST_PREFIX ${module}. PROPERTIES LABELS ${ARG_LABEL} DISCOVERY_TIMEOUT 60)
endfunction()
