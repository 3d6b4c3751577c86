//===- measure.cpp - Runs a program and reports its time and memory -------===//
//
// usage: measure REPORT SECONDS PROGRAM ARGUMENTS...
//
// Writes "CODE PROCESSOR_SECONDS PEAK_KIB" to REPORT. Ends the program after SECONDS. A program
// ended by a signal has the code -SIGNAL. Example: "-9 10.02 51200".
//
// This is a separate program because the kernel counts the pages of the parent as those of a new
// process, and this one has few.
//
//===----------------------------------------------------------------------===//

#include <cstdio>
#include <cstdlib>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc < 4)
    return 120;
  pid_t child = ::fork();
  if (child < 0)
    return 121;
  if (child == 0) {
    ::alarm(unsigned(std::atoi(argv[2])));
    ::execv(argv[3], argv + 3);
    ::_exit(122);
  }
  int status = 0;
  struct rusage usage = {};
  if (::wait4(child, &status, 0, &usage) != child)
    return 123;
  auto toSeconds = [](const struct timeval &time) {
    return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
  };
  double seconds = toSeconds(usage.ru_utime) + toSeconds(usage.ru_stime);
  FILE *report = std::fopen(argv[1], "w");
  if (!report)
    return 124;
  std::fprintf(report, "%d %f %ld\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
               seconds, usage.ru_maxrss);
  return std::fclose(report) == 0 ? 0 : 125;
}
