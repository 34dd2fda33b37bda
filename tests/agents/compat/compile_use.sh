# A build: make with jobs, a compiler, a static and a shared library, a debugger's symbols.
set -euo pipefail
cat > Makefile <<'END'
CFLAGS = -O1 -g
all: program
program: main.o libsmall.a libshared.so
	$(CC) -o $@ main.o libsmall.a -L. -lshared -Wl,-rpath,'$$ORIGIN' -lm -lpthread
libsmall.a: a.o b.o c.o
	$(AR) rc $@ $^
libshared.so: d.c
	$(CC) -shared -fPIC -o $@ $<
END
for name in a b c d; do echo "int $name(void) { return 1; }" > $name.c; done
cat > main.c <<'END'
#include <math.h>
#include <pthread.h>
#include <stdio.h>
int a(void), b(void), c(void), d(void);
static void *work(void *unused) { return unused; }
int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL)) return 1;
    printf("%d %.0f\n", a() + b() + c() + d(), sqrt(16));
}
END
make -s -j 4
test "$(./program)" = "4 4"
echo 'int main(void) { return 0; }' | cc -x c -static -o still - 2> /dev/null && ./still
TMPDIR=/tmp cc -pipe -o again main.c a.c b.c c.c d.c -lm && ./again > /dev/null
echo all of it works
