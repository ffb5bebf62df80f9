// SLUICE_INSTRUMENTED: 1 where this translation unit is compiled for a sanitizer that looks at memory or
// threads, else 0; SLUICE_INSTRUMENTED_THREADS: for one that looks at threads. g++ tells by macros, clang by
// features.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define SLUICE_INSTRUMENTED_THREADS 1
#elif defined(__SANITIZE_ADDRESS__)
#define SLUICE_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_INSTRUMENTED_THREADS 1
#elif __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define SLUICE_INSTRUMENTED 1
#endif
#endif
#ifndef SLUICE_INSTRUMENTED_THREADS
#define SLUICE_INSTRUMENTED_THREADS 0
#endif
#ifndef SLUICE_INSTRUMENTED
#define SLUICE_INSTRUMENTED SLUICE_INSTRUMENTED_THREADS
#endif
