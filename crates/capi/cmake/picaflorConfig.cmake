# find_package(picaflor): the targets picaflor::picaflor, the shared library, and picaflor::picaflor_static. It stands
# in lib/cmake/picaflor of the folder that scripts/install was given, and finds that folder from its own place.

get_filename_component(_picaflor_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_picaflor_needed "${_picaflor_prefix}/include/picaflor.h" "${_picaflor_prefix}/lib/libpicaflor_c.so"
    "${_picaflor_prefix}/lib/libpicaflor_c.a")
foreach(_picaflor_file IN LISTS _picaflor_needed)
    if(NOT EXISTS "${_picaflor_file}")
        set(picaflor_FOUND FALSE)
        set(picaflor_NOT_FOUND_MESSAGE "${_picaflor_file} is missing; install it again by scripts/install c PREFIX")
        return()
    endif()
endforeach()

if(NOT TARGET picaflor::picaflor)
    add_library(picaflor::picaflor SHARED IMPORTED)
    set_target_properties(picaflor::picaflor PROPERTIES
        IMPORTED_LOCATION "${_picaflor_prefix}/lib/libpicaflor_c.so"
        IMPORTED_SONAME "libpicaflor_c.so.${picaflor_VERSION_MAJOR}"
        INTERFACE_INCLUDE_DIRECTORIES "${_picaflor_prefix}/include")
    add_library(picaflor::picaflor_static STATIC IMPORTED)
    set_target_properties(picaflor::picaflor_static PROPERTIES
        IMPORTED_LOCATION "${_picaflor_prefix}/lib/libpicaflor_c.a"
        INTERFACE_INCLUDE_DIRECTORIES "${_picaflor_prefix}/include"
        INTERFACE_LINK_LIBRARIES "pthread;dl;m;${CMAKE_DL_LIBS}")
endif()
set(picaflor_FOUND TRUE)
