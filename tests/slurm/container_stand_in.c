/* Stand-ins for two container runtimes, for the tests alone. No part of either: what is alike is the
 * command line, which environment comes in, and that nothing is inside which was not mounted.
 *
 *   gcc -o apptainer container_stand_in.c                         a program: apptainer exec …
 *   gcc -shared -fPIC -DPYXIS -o pyxis.so container_stand_in.c    a SPANK plugin: srun --container-image=…
 *
 * An image is a folder. The lines of its file .image are `mount PATH`, a folder of this machine that is
 * part of it, and `env NAME=VALUE`. Pyxis finds the image NAME below its argument images=FOLDER, with
 * _ for each / # and :.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

typedef void (*set_env)(const char *name, const char *value);

static int fail(const char *what, const char *on)
{
	fprintf(stderr, "stand-in: %s: %s: %s\n", what, on, strerror(errno));
	return -1;
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	if (fd >= 0) {
		if (write(fd, text, strlen(text)) < 0)
			fail("write", path);
		close(fd);
	}
}

/* A mount namespace of its own; for a user without rights also a user namespace. */
static int isolate(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)))
		return fail("unshare", "namespaces");
	if (uid) {
		write_file("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		write_file("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		write_file("/proc/self/gid_map", map);
	}
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ? fail("mount", "/") : 0;
}

/* Bind a folder to its place below the root, on a disk of its own there, so that the image stays as it is. */
static int bind_at(const char *root, const char *from, const char *to, int readonly)
{
	char path[8192], *slash;

	snprintf(path, sizeof(path), "%s%s", root, to);
	for (slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = 0;
		mkdir(path, 0755);
	}
	mkdir(path, 0755);
	if (mount(from, path, NULL, MS_BIND | MS_REC, NULL))
		return fail("mount", from);
	if (readonly && mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL))
		return fail("mount read-only", from);
	return 0;
}

static int bind_list(const char *root, const char *list)
{
	char *copy = strdup(list), *rest = copy, *one, *from, *to, *mode;

	while ((one = strsep(&rest, ","))) {
		from = strsep(&one, ":");
		to = strsep(&one, ":");
		mode = one;
		if (bind_at(root, from, to ? to : from, mode && !strcmp(mode, "ro")))
			return -1;
	}
	free(copy);
	return 0;
}

/* What the image holds, in a tmpfs at `root`, which is empty. */
static int lay_out(const char *image, const char *root, set_env set)
{
	char path[4096], line[4096], *value;
	FILE *file;

	snprintf(path, sizeof(path), "%s/.image", image);
	file = fopen(path, "re");
	if (!file)
		return fail("no image", image);
	if (mount("tmpfs", root, "tmpfs", 0, "mode=0755"))
		return fail("mount", root);
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "mount ", 6) && bind_at(root, line + 6, line + 6, 1))
			return -1;
		if (!strncmp(line, "env ", 4) && (value = strchr(line, '='))) {
			*value++ = 0;
			set(line + 4, value);
		}
	}
	fclose(file);
	snprintf(path, sizeof(path), "%s/files", image);
	if (bind_at(root, path, "/image", 1) || bind_at(root, "/dev", "/dev", 0) || bind_at(root, "/proc", "/proc", 0))
		return -1;
	snprintf(path, sizeof(path), "%s/tmp", root);
	mkdir(path, 0777);
	chmod(path, 01777);
	for (const char **name = (const char *[]){"bin", "lib", "lib64", "sbin", NULL}; *name; name++) {
		char target[64];

		snprintf(path, sizeof(path), "%s/%s", root, *name);
		snprintf(target, sizeof(target), "usr/%s", *name);
		if (symlink(target, path))
			return fail("symlink", path);
	}
	return 0;
}

static int enter(const char *image, const char *mounts, const char *workdir, set_env set)
{
	const char *root = "/mnt";

	if (isolate() || lay_out(image, root, set) || bind_list(root, mounts) || chroot(root))
		return -1;
	return chdir(workdir) ? fail("no folder in the container", workdir) : 0;
}

#ifdef PYXIS
#include <slurm/spank.h>

SPANK_PLUGIN(pyxis_stand_in, 1);

static char *image, *mounts = "", *workdir = "/";
static spank_t current;

static int keep(int which, const char *value, int remote)
{
	*(which == 0 ? &image : which == 1 ? &mounts : &workdir) = strdup(value);
	return 0;
}

static struct spank_option options[] = {
	{"container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH", "the image of the stand-in", 1, 0, keep},
	{"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "mounts of the stand-in", 1, 1, keep},
	{"container-workdir", "PATH", "working directory of the stand-in", 1, 2, keep},
	SPANK_OPTIONS_TABLE_END,
};

int slurm_spank_init(spank_t sp, int argc, char **argv)
{
	for (int i = 0; options[i].name; i++)
		if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

/* Of a variable that both have, the image's counts. */
static void set(const char *name, const char *value)
{
	spank_setenv(current, name, value, 1);
}

int slurm_spank_task_init(spank_t sp, int argc, char **argv)
{
	char path[4096], *name;

	if (!image)
		return 0;
	current = sp;
	if (strspn(image, "./"))
		snprintf(path, sizeof(path), "%s", image);
	else {
		snprintf(path, sizeof(path), "%s/%s", argv[0] + strlen("images="), image);
		for (name = path + strlen(argv[0]) - strlen("images=") + 1; *name; name++)
			if (strchr("/#:", *name))
				*name = '_';
	}
	return enter(path, mounts, workdir, set);
}
#else
/* Of a variable that both have, the caller's counts, but for PATH. */
static void set(const char *name, const char *value)
{
	setenv(name, value, !strcmp(name, "PATH"));
}

int main(int argc, char **argv)
{
	const char *mounts = "", *workdir = "/";
	int at = 2;

	if (argc < 4 || strcmp(argv[1], "exec"))
		return fprintf(stderr, "stand-in: only exec\n"), 255;
	for (; at < argc && argv[at][0] == '-'; at++) {
		if (!strcmp(argv[at], "--bind"))
			mounts = argv[++at];
		else if (!strcmp(argv[at], "--pwd"))
			workdir = argv[++at];
		else if (!strcmp(argv[at], "--nv"))
			setenv("STAND_IN_NV", "1", 1);
		else
			return fprintf(stderr, "Error: unknown flag: %s\n", argv[at]), 1;
	}
	unsetenv("LD_LIBRARY_PATH");
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	if (enter(argv[at], mounts, workdir, set))
		return 255;
	execvp(argv[at + 1], argv + at + 1);
	return fail("exec", argv[at + 1]), 255;
}
#endif
