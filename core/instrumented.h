// SLUICE_INSTRUMENTED is 1 if a memory or thread sanitizer instruments this translation unit, else 0.
// SLUICE_INSTRUMENTED_THREADS is the same for a thread sanitizer. g++ defines macros, clang has feature
// tests.
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
