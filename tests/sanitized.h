// SLX_SANITIZED: 1 in a build with the address or thread sanitizer. The sanitizers allocate memory
// themselves, so tests that measure memory are skipped.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLX_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLX_SANITIZED 1
#endif
#endif
#ifndef SLX_SANITIZED
#define SLX_SANITIZED 0
#endif
