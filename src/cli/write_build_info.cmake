# Writes build_info.h when the revision changed: cmake -DSOURCE=DIR -DOUTPUT=FILE -DVERSION=... -P this
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(revision "unknown")
endif()
set(content "#pragma once
#define SLX_VERSION \"${VERSION}\"
#define SLX_REVISION \"${revision}\"
#define SLX_BUILD_TYPE \"${BUILD_TYPE}\"
#define SLX_SANITIZERS \"${SANITIZE}\"
")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT "${old}" STREQUAL "${content}")
  file(WRITE ${OUTPUT} "${content}")
endif()
