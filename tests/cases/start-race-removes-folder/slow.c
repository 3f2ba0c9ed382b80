// Delays a start at two moments, so that two concurrent starts overlap: before it makes a folder,
// and before it writes the file that tests whether checkpoints can be written.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
int mkdir(const char* path, mode_t mode) {
  int (*real)(const char*, mode_t) = (int (*)(const char*, mode_t))dlsym(RTLD_NEXT, "mkdir");
  usleep(300000);
  return real(path, mode);
}
int mkstemp(char* name) {
  int (*real)(char*) = (int (*)(char*))dlsym(RTLD_NEXT, "mkstemp");
  usleep(700000);
  return real(name);
}
