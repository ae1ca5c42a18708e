/* A stand-in for NVIDIA's libnvidia-ml.so.1, for tests on machines without a GPU.
 *
 * It answers from the text file "machine" in the folder where it lies. standin.py writes that file and
 * describes its lines; it is found by dladdr(3), because an environment does not reach the child that asks.
 * The functions are those that pynvml calls for cdigen and those that `nvidia-smi -L` and `--query-gpu` need.
 * Signatures, structures, numbers: NVIDIA's NVML API reference; only what is used here is declared.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define MAX_GPUS 32
#define MAX_INSTANCES 8
#define MAX_FAULTS 32

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    UNKNOWN = 999,
};

/* A GPU, or one of its MIG devices: then parent is its GPU. missing: an index that no device has. */
struct device {
    struct device *parent;
    int missing;
    char uuid[96], name[96], profile[32];
    unsigned domain, bus, slot, brand, major, minor_capability, gpu_instance, compute_instance;
    int minor, mig, plain_names; /* minor, mig: -1 is "not supported" */
    unsigned long long memory;
    int instances;
};

struct fault {
    struct device *device; /* NULL: whatever is asked */
    char function[64], kind[16];
    double number;
};

static struct device gpus[MAX_GPUS], instances[MAX_GPUS][MAX_INSTANCES];
static struct fault faults[MAX_FAULTS];
static int gpu_count, fault_count, initialised;
static unsigned cuda;
static char driver[80], folder[4096];

static void hang(void)
{
    signal(SIGTERM, SIG_IGN);
    while (pause())
        ;
}

static void trace(const char *function)
{
    char path[sizeof folder + 8];
    FILE *file;

    snprintf(path, sizeof path, "%s/calls", folder);
    file = fopen(path, "a");
    if (file) {
        fprintf(file, "%s\n", function);
        fclose(file);
    }
}

static int suffer(const struct fault *fault, const char *function)
{
    static const char rubbish[] = "NVML: {\"rubbish\": [1, 2\n";
    const size_t length = sizeof rubbish - 1;

#define IS(word) (!strcmp(fault->kind, word))
    if (IS("error")) return (int)fault->number;
    if (IS("slow")) usleep((useconds_t)(fault->number * 1e6));
    if (IS("hang")) hang();
    if (IS("crash")) *(volatile int *)0 = 0;
    if (IS("signal")) raise((int)fault->number);
    if (IS("exit")) _exit((int)fault->number);
    if (IS("grandchild") && fork() == 0) hang();
    if (IS("trace")) trace(function);
    if (IS("rubbish") && write(STDOUT_FILENO, rubbish, length) < 0) return UNKNOWN;
    while (IS("flood") && write((int)fault->number, rubbish, length) > 0)
        ;
#undef IS
    return SUCCESS;
}

/* Let happen what the description wants of FUNCTION for DEVICE; anything but SUCCESS is the answer. */
static int meet(const char *function, const struct device *device)
{
    for (const struct fault *fault = faults; fault < faults + fault_count; fault++) {
        int concerns = !fault->device || (device && (device == fault->device || device->parent == fault->device));
        int result = SUCCESS;

        if (concerns && (!strcmp(fault->function, "*") || !strcmp(fault->function, function)))
            result = suffer(fault, function);
        if (result != SUCCESS)
            return result;
    }
    return SUCCESS;
}

static int is_device(const struct device *device)
{
    for (int gpu = 0; gpu < gpu_count; gpu++) {
        if (device == &gpus[gpu])
            return 1;
        if (device >= instances[gpu] && device < instances[gpu] + gpus[gpu].instances)
            return !device->missing;
    }
    return 0;
}

#define REQUIRE(condition, code) do { if (!(condition)) return (code); } while (0)
#define ENTER(device) do { \
        REQUIRE(initialised, UNINITIALIZED); \
        int met = meet(__func__, device); \
        REQUIRE(met == SUCCESS, met); \
    } while (0)
#define ENTER_DEVICE(device) do { REQUIRE(is_device(device), INVALID_ARGUMENT); ENTER(device); } while (0)
#define ENTER_GPU(device) do { ENTER_DEVICE(device); REQUIRE(!(device)->parent, INVALID_ARGUMENT); } while (0)
#define ENTER_MIG(device) do { ENTER_DEVICE(device); REQUIRE((device)->parent, INVALID_ARGUMENT); } while (0)

static int give(const char *text, char *buffer, unsigned length)
{
    REQUIRE(buffer, INVALID_ARGUMENT);
    REQUIRE(strlen(text) < length, INSUFFICIENT_SIZE);
    strcpy(buffer, text);
    return SUCCESS;
}

/* ---- the description ---- */

static void read_instance(struct device *gpu, const char *value)
{
    struct device *instance = &instances[gpu - gpus][gpu->instances];

    if (gpu->instances == MAX_INSTANCES)
        return;
    gpu->instances++;
    instance->parent = gpu;
    instance->missing = sscanf(value, "%u %u %95s %31s", &instance->gpu_instance,
                               &instance->compute_instance, instance->uuid, instance->profile) < 4;
}

#define IS(word) (!strcmp(key, word))
static void read_gpu(struct device *gpu, const char *key, const char *value)
{
    if (IS("uuid")) snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
    if (IS("name")) snprintf(gpu->name, sizeof gpu->name, "%s", value);
    if (IS("minor")) gpu->minor = atoi(value);
    if (IS("brand")) gpu->brand = (unsigned)atoi(value);
    if (IS("memory")) gpu->memory = strtoull(value, NULL, 10);
    if (IS("capability")) sscanf(value, "%u.%u", &gpu->major, &gpu->minor_capability);
    if (IS("mig")) gpu->mig = atoi(value);
    if (IS("plain-names")) gpu->plain_names = 1;
    if (IS("instance")) read_instance(gpu, value);
}

static void read_line(const char *key, const char *value)
{
    struct device *gpu = gpu_count ? &gpus[gpu_count - 1] : NULL;

    if (IS("driver")) snprintf(driver, sizeof driver, "%s", value);
    if (IS("cuda")) cuda = (unsigned)atoi(value);
    if (IS("fault") && fault_count < MAX_FAULTS) {
        struct fault *fault = &faults[fault_count++];

        fault->device = gpu;
        sscanf(value, "%63s %15s %lf", fault->function, fault->kind, &fault->number);
    }
    if (IS("gpu") && gpu_count < MAX_GPUS) {
        gpu = &gpus[gpu_count++];
        gpu->minor = gpu->mig = -1;
        sscanf(value, "%x:%x:%x", &gpu->domain, &gpu->bus, &gpu->slot);
    }
    if (gpu)
        read_gpu(gpu, key, value);
}
#undef IS

__attribute__((constructor)) static void read_machine(void)
{
    char path[sizeof folder + 8], line[512], *space;
    Dl_info info;
    FILE *file;

    if (!dladdr((void *)read_machine, &info))
        return;
    snprintf(folder, sizeof folder, "%s", info.dli_fname);
    *strrchr(folder, '/') = 0;
    snprintf(path, sizeof path, "%s/machine", folder);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        space = strchr(line, ' ');
        if (space)
            *space++ = 0;
        read_line(line, space ? space : "");
    }
    if (file)
        fclose(file);
    meet("load", NULL);
}

/* A function that gives one number of a device, or is "not supported" where UNLESS holds. */
#define NUMBER(function, ENTRY, unless, number) \
    API int function(struct device *device, unsigned *value) \
    { \
        ENTRY(device); \
        REQUIRE(!(unless), NOT_SUPPORTED); \
        *value = (unsigned)(number); \
        return SUCCESS; \
    }

/* ---- the system ---- */

API int nvmlInitWithFlags(unsigned flags)
{
    int met = meet(__func__, NULL);

    REQUIRE(met == SUCCESS, met);
    /* NVML_INIT_FLAG_NO_GPUS is 1: without it, a machine without GPUs is an error. */
    REQUIRE(gpu_count || flags & 1, NOT_FOUND);
    initialised = 1;
    return SUCCESS;
}

API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API int nvmlShutdown(void)
{
    ENTER(NULL);
    initialised = 0;
    return SUCCESS;
}

API const char *nvmlErrorString(int code)
{
    return code == SUCCESS ? "Success" : code == NOT_FOUND ? "Not Found" : "Error of the stand-in";
}

/* Undocumented. nvidia-smi (470, 535, 550 seen) refuses a library that has no table for its GUID, "Mismatch
 * in versions". The table's first word is its size in bytes; nvidia-smi does without any function that lies
 * beyond it, so a table of nothing but its size is enough. */
API int nvmlInternalGetExportTable(const void **table, const unsigned char *guid)
{
    static const unsigned char known[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    static const size_t empty = sizeof empty;

    REQUIRE(!memcmp(guid, known, sizeof known), NOT_FOUND);
    *table = &empty;
    return SUCCESS;
}

API int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    ENTER(NULL);
    return give(driver, version, length);
}

API int nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER(NULL);
    *version = (int)cuda;
    return SUCCESS;
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* ---- GPUs ---- */

API int nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER(NULL);
    *count = (unsigned)gpu_count;
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    REQUIRE(index < (unsigned)gpu_count, INVALID_ARGUMENT);
    ENTER(&gpus[index]);
    *device = &gpus[index];
    return SUCCESS;
}

API int nvmlDeviceGetName(struct device *device, char *name, unsigned length)
{
    const struct device *gpu;
    char text[160];

    ENTER_DEVICE(device);
    gpu = device->parent ? device->parent : device;
    snprintf(text, sizeof text, "%s", gpu->name);
    if (device != gpu && !gpu->plain_names)
        snprintf(text, sizeof text, "%s MIG %s", gpu->name, device->profile);
    return give(text, name, length);
}

API int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned length)
{
    ENTER_DEVICE(device);
    return give(device->uuid, uuid, length);
}

API int nvmlDeviceGetCudaComputeCapability(struct device *device, int *major, int *minor)
{
    ENTER_GPU(device);
    *major = (int)device->major;
    *minor = (int)device->minor_capability;
    return SUCCESS;
}

NUMBER(nvmlDeviceGetIndex, ENTER_GPU, 0, device - gpus)
NUMBER(nvmlDeviceGetMinorNumber, ENTER_GPU, device->minor < 0, device->minor)
NUMBER(nvmlDeviceGetBrand, ENTER_GPU, 0, device->brand)

struct memory {
    unsigned long long total, free, used;
};

API int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    ENTER_GPU(device);
    *memory = (struct memory){.total = device->memory, .free = device->memory};
    return SUCCESS;
}

struct pci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

API int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci *pci)
{
    ENTER_GPU(device);
    *pci = (struct pci){.domain = device->domain, .bus = device->bus, .device = device->slot};
    snprintf(pci->legacy_id, sizeof pci->legacy_id, "%04X:%02X:%02X.0", device->domain & 0xffff,
             device->bus & 0xff, device->slot & 0xff);
    snprintf(pci->id, sizeof pci->id, "%08X:%02X:%02X.0", device->domain, device->bus & 0xff,
             device->slot & 0xff);
    return SUCCESS;
}

/* ---- MIG ---- */

API int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending)
{
    ENTER_GPU(device);
    REQUIRE(device->mig >= 0, NOT_SUPPORTED);
    *current = *pending = (unsigned)device->mig;
    return SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **mig)
{
    ENTER_GPU(device);
    REQUIRE(device->mig >= 0, NOT_SUPPORTED);
    REQUIRE(index < 7, INVALID_ARGUMENT);
    REQUIRE(index < (unsigned)device->instances && !instances[device - gpus][index].missing, NOT_FOUND);
    *mig = &instances[device - gpus][index];
    return SUCCESS;
}

NUMBER(nvmlDeviceGetMaxMigDeviceCount, ENTER_GPU, 0, device->mig >= 0 ? 7 : 0)
NUMBER(nvmlDeviceGetGpuInstanceId, ENTER_MIG, 0, device->gpu_instance)
NUMBER(nvmlDeviceGetComputeInstanceId, ENTER_MIG, 0, device->compute_instance)

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};

API int nvmlDeviceGetAttributes_v2(struct device *mig, struct attributes *attributes)
{
    unsigned compute = 0, slices = 0, gigabytes = 0;

    ENTER_MIG(mig);
    if (sscanf(mig->profile, "%uc.%ug.%ugb", &compute, &slices, &gigabytes) != 3) {
        sscanf(mig->profile, "%ug.%ugb", &slices, &gigabytes);
        compute = slices;
    }
    *attributes = (struct attributes){.gpu_slices = slices, .compute_slices = compute};
    /* An A100's 1g.5gb has 4864 MiB, an H100's 1g.10gb 9984 (NVIDIA MIG User Guide, nvidia-smi's output). */
    attributes->memory_mib = gigabytes * 1024ull - 256;
    if (attributes->memory_mib > mig->parent->memory >> 20)
        attributes->memory_mib = mig->parent->memory >> 20;
    return SUCCESS;
}
