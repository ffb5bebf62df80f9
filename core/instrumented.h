// SLUICE_INSTRUMENTED: 1 where this translation unit is compiled for a sanitizer that looks at memory or
// threads, else 0. g++ tells by macros, clang by features.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLUICE_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SLUICE_INSTRUMENTED 1
#endif
#endif
#ifndef SLUICE_INSTRUMENTED
#define SLUICE_INSTRUMENTED 0
#endif
