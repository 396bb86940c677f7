// The viewer of one recorded episode: decodes it, builds the scene, and moves it through time.
// Axes are PyBullet's: x forward, z up, in metres. `window.replay` is for tests.

const episode = JSON.parse(document.getElementById("episode").textContent);
const element = (id) => document.getElementById(id);
const SKY = "#e2ecf7";
const NEAR_SECONDS = 2; // what the charts show when "2 s" is checked

// --- decoding

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// IEEE 754 half precision as numbers: 1 bit sign, 5 bits exponent, 10 bits fraction.
function halves(text) {
  return Float32Array.from(new Uint16Array(bytes(text).buffer), (half) => {
    const sign = half & 0x8000 ? -1 : 1, exponent = (half >> 10) & 31, fraction = half & 1023;
    if (exponent === 0) return sign * fraction * 2 ** -24;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  });
}

async function loadThree() {
  const packed = new Blob([bytes(element("three").textContent)]).stream();
  const code = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).text();
  const script = document.createElement("script");
  script.type = "module"; // strict mode, and names that do not leak
  // A page has no modules: the exports become one object.
  script.textContent = code.replace(/export\{(.*?)\}/, (_, names) =>
    `window.THREE={${names.replace(/([\w$]+) as (\w+)/g, "$2:$1")}}`);
  document.head.append(script);
  while (!window.THREE) await new Promise((resolve) => setTimeout(resolve, 5));
}

function start() {
  const THREE = window.THREE;
  const linkCount = episode.links.length;
  const poseSteps = new Int32Array(bytes(episode.poseSteps).buffer);
  const roots = new Float32Array(bytes(episode.root).buffer);
  const poses = halves(episode.poses);
  const rewards = new Float32Array(bytes(episode.rewards).buffer);
  const distances = episode.distances && new Float32Array(bytes(episode.distances).buffer);
  const duration = episode.steps * episode.stepSeconds;
  const returns = [0]; // [steps + 1]
  for (const reward of rewards) returns.push(returns[returns.length - 1] + reward);

  // --- scene and light

  const renderer = new THREE.WebGLRenderer({ canvas: element("scene"), antialias: true });
  renderer.shadowMap.enabled = true;
  renderer.shadowMap.type = THREE.PCFSoftShadowMap;
  const scene = new THREE.Scene();
  scene.background = new THREE.Color(SKY);
  const camera = new THREE.PerspectiveCamera(38, 1, 0.01, 500);
  camera.up.set(0, 0, 1);
  const sky = new THREE.HemisphereLight("#ffffff", "#8d949c", 1.7);
  sky.position.set(0, 0, 1); // three.js takes y for up
  scene.add(sky);
  const sun = new THREE.DirectionalLight("#fff6e8", 2.1);
  sun.castShadow = true;
  sun.shadow.mapSize.set(2048, 2048);
  sun.shadow.bias = -0.0005;
  scene.add(sun, sun.target);

  // --- robot

  const mover = new THREE.Group(); // each child is a link
  const links = episode.links.map(() => mover.add(new THREE.Group()).children.at(-1));
  scene.add(mover);

  // The text of an OBJ file, of which only corners and faces are left.
  function meshGeometry(text, scale) {
    const corners = [], positions = [];
    for (const line of text.split("\n")) {
      const [kind, ...words] = line.trim().split(/\s+/);
      if (kind === "v") corners.push(words.slice(0, 3).map((word, axis) => word * scale[axis]));
      if (kind !== "f") continue;
      // 7/2/1 is corner 7, counted from 1; a negative number counts from the end.
      const face = words.map((word) => corners.at(parseInt(word) - (parseInt(word) > 0)));
      for (let second = 1; second + 1 < face.length; second++)
        positions.push(...face[0], ...face[second], ...face[second + 1]);
    }
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.Float32BufferAttribute(positions, 3));
    geometry.computeVertexNormals(); // one for each triangle
    return geometry;
  }
  const lying = Math.PI / 2; // three.js builds along y, PyBullet along z
  const geometries = {
    box: ([x, y, z]) => new THREE.BoxGeometry(x, y, z),
    sphere: ([radius]) => new THREE.SphereGeometry(radius, 40, 24),
    cylinder: ([length, radius]) =>
      new THREE.CylinderGeometry(radius, radius, length, 40).rotateX(lying),
    capsule: ([length, radius]) => new THREE.CapsuleGeometry(radius, length, 12, 32).rotateX(lying),
  };
  for (const shape of episode.shapes) {
    const geometry = shape.kind === "mesh" ? meshGeometry(shape.mesh, shape.size)
      : geometries[shape.kind](shape.size);
    const [red, green, blue, opacity] = shape.colour;
    const material = new THREE.MeshStandardMaterial({ roughness: 0.55, metalness: 0.05 });
    material.color.setRGB(red, green, blue, THREE.SRGBColorSpace);
    if (opacity < 1) Object.assign(material, { transparent: true, opacity: Math.max(opacity, 0.3) });
    const body = new THREE.Mesh(geometry, material);
    body.position.fromArray(shape.position);
    body.quaternion.fromArray(shape.quaternion);
    if (shape.ends) { // from point to point, along the shape's z axis
      const start = new THREE.Vector3(...shape.ends.slice(0, 3));
      const end = new THREE.Vector3(...shape.ends.slice(3));
      body.position.lerpVectors(start, end, 0.5);
      body.quaternion.setFromUnitVectors(new THREE.Vector3(0, 0, 1), end.sub(start).normalize());
    }
    body.castShadow = body.receiveShadow = true;
    links[shape.link].add(body);
  }

  const before = new THREE.Quaternion(), after = new THREE.Quaternion();
  const rootAt = (pose) => new THREE.Vector3().fromArray(roots, 3 * pose);

  // The pose before a time, and the share of the way to the next one.
  function poseAt(seconds) {
    const step = seconds / episode.stepSeconds;
    let low = 0, high = poseSteps.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (poseSteps[middle] <= step) low = middle;
      else high = middle;
    }
    const share = (step - poseSteps[low]) / Math.max(1, poseSteps[high] - poseSteps[low]);
    return [low, high, Math.min(1, Math.max(0, share))];
  }

  function pose(seconds) {
    const [low, high, share] = poseAt(seconds);
    mover.position.lerpVectors(rootAt(low), rootAt(high), share);
    links.forEach((link, index) => {
      const one = 7 * (low * linkCount + index), two = 7 * (high * linkCount + index);
      for (let axis = 0; axis < 3; axis++)
        link.position.setComponent(axis, poses[one + axis] * (1 - share) + poses[two + axis] * share);
      before.fromArray(poses, one + 3).normalize();
      after.fromArray(poses, two + 3).normalize();
      link.quaternion.slerpQuaternions(before, after, share);
    });
  }

  // --- how large the robot is, and where it goes

  pose(0);
  scene.updateMatrixWorld(true);
  const box = new THREE.Box3().setFromObject(mover);
  const extent = box.getSize(new THREE.Vector3());
  const size = Math.min(4, Math.max(0.3, extent.x, extent.z, 0.7 * extent.y)); // metres
  const floor = episode.floor !== null && episode.floor > box.min.z - size ? episode.floor
    : box.min.z - 0.02 * size; // no floor near the robot: the marks are just below it
  const low = new THREE.Vector3(Infinity, Infinity, Infinity), high = low.clone().negate();
  for (let index = 0; index < poseSteps.length; index++) {
    low.min(rootAt(index));
    high.max(rootAt(index));
  }
  const middleHeight = Math.max(floor + 0.3 * size, (box.min.z + box.max.z) / 2);

  // --- ground: chequer, metre marks, and the path walked so far

  function canvasTexture(width, height, paint) {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    paint(canvas.getContext("2d"));
    const texture = new THREE.CanvasTexture(canvas);
    texture.colorSpace = THREE.SRGBColorSpace;
    texture.anisotropy = renderer.capabilities.getMaxAnisotropy();
    return texture;
  }
  const square = size < 0.5 ? 0.1 : 0.5; // metres
  const chequer = canvasTexture(128, 128, (pen) => {
    pen.fillStyle = "#cfd8e0";
    pen.fillRect(0, 0, 128, 128);
    pen.fillStyle = "#e6ebf0";
    pen.fillRect(0, 0, 64, 64);
    pen.fillRect(64, 64, 64, 64);
  });
  chequer.wrapS = chequer.wrapT = THREE.RepeatWrapping;
  const reach = Math.ceil(40 * size); // metres to the edge of the ground, which fog hides
  chequer.repeat.set(reach / square, reach / square);
  const ground = new THREE.Mesh(
    new THREE.PlaneGeometry(2 * reach, 2 * reach),
    new THREE.MeshStandardMaterial({ map: chequer, roughness: 1 }),
  );
  ground.receiveShadow = true;
  scene.add(ground);
  scene.fog = new THREE.Fog(SKY, 7 * size, 24 * size);

  const flat = (width, height, material, x, y, layer) => {
    const plane = new THREE.Mesh(new THREE.PlaneGeometry(width, height), material);
    plane.position.set(x, y, floor + 0.0015 * size * layer);
    plane.receiveShadow = true;
    scene.add(plane);
    return plane;
  };
  const paint = (color) => new THREE.MeshStandardMaterial({ color, roughness: 1 });
  const dark = paint("#2c3e50"), white = paint("#ffffff"), faint = paint("#8fa1b3");
  const unit = size < 0.5 ? 0.1 : 1; // metres between two numbers
  const first = Math.floor(low.x / unit - 1), last = Math.min(Math.ceil(high.x / unit + 2), first + 250);
  const band = 0.07 * size, letters = Math.min(0.36 * size, 0.8 * unit);

  // The ruler lies to the right of the path: y of the robot when it first came nearest to x.
  function pathY(x) {
    let nearest = 0;
    for (let index = 1; index < poseSteps.length; index++)
      if (Math.abs(roots[3 * index] - x) < Math.abs(roots[3 * nearest] - x) - 1e-3) nearest = index;
    return roots[3 * nearest + 1];
  }
  for (let mark = first; mark <= last; mark++) {
    const x = mark * unit, y = pathY(x), near = y - 0.7 * size;
    flat(0.014 * size, 1.8 * size, faint, x, y + 0.2 * size, 1);
    flat(0.03 * size, 2.4 * band, dark, x, near, 4);
    if (mark < last) { // white and dark tenths to the next mark
      const slope = pathY(x + unit) - y, angle = Math.atan2(slope, unit);
      for (let tenth = 0; tenth < 10; tenth++) {
        const along = (tenth + 0.5) / 10;
        flat(Math.hypot(unit, slope) / 10 + 0.002, band, tenth % 2 ? white : dark,
          x + along * unit, near + along * slope, 3).rotation.z = angle;
      }
    }
    const label = `${unit < 1 ? x.toFixed(1) : x} m`.replace("-", "−");
    const map = canvasTexture(256, 128, (pen) => {
      pen.fillStyle = "#14202b";
      pen.font = "bold 92px system-ui, 'DejaVu Sans', sans-serif";
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      Object.assign(pen, { strokeStyle: SKY, lineWidth: 10, lineJoin: "round" });
      pen.strokeText(label, 128, 68, 240);
      pen.fillText(label, 128, 68, 240);
    });
    const sign = scene.add(new THREE.Sprite(new THREE.SpriteMaterial({ map }))).children.at(-1);
    sign.scale.set(letters, letters / 2, 1); // a sprite faces the camera from everywhere
    sign.position.set(x, near - band - 0.8 * letters, floor + 0.25 * letters);
  }
  const trail = new THREE.BufferGeometry();
  const corners = new Float32Array(6 * poseSteps.length), width = 0.02 * size;
  for (let index = 0; index < poseSteps.length; index++) {
    const here = rootAt(index);
    const ahead = rootAt(Math.min(index + 5, poseSteps.length - 1))
      .sub(rootAt(Math.max(0, index - 5))).setZ(0);
    const side = ahead.length() > 1e-6 ? ahead.normalize() : ahead.set(1, 0, 0);
    corners.set([here.x - side.y * width, here.y + side.x * width, floor + 0.006 * size], 6 * index);
    corners.set([here.x + side.y * width, here.y - side.x * width, floor + 0.006 * size], 6 * index + 3);
  }
  trail.setAttribute("position", new THREE.BufferAttribute(corners, 3));
  trail.setIndex(
    Array.from({ length: poseSteps.length - 1 }, (_, i) => 2 * i)
      .flatMap((i) => [i, i + 1, i + 2, i + 1, i + 3, i + 2]),
  );
  const path = new THREE.Mesh(
    trail,
    new THREE.MeshBasicMaterial({ color: "#0072b2", side: THREE.DoubleSide }),
  );
  path.frustumCulled = false;
  if (distances) scene.add(path);

  // --- camera: orbits a point that follows the robot, without its shaking

  const views = { // angles in degrees: azimuth 0 looks along y, from the robot's right
    side: { azimuth: 16, elevation: 16, distance: 2.7 * size },
    front: { azimuth: 74, elevation: 14, distance: 2.7 * size },
    top: { azimuth: 0, elevation: 85, distance: 3.6 * size },
  };
  const orbit = { ...views.side };
  const target = new THREE.Vector3();
  const followed = new THREE.Vector3();

  function centreAt(seconds) {
    const half = 0.4; // seconds before and after, of the mean
    followed.set(0, 0, 0);
    const samples = 17;
    for (let sample = 0; sample < samples; sample++) {
      const shift = half * ((2 * sample) / (samples - 1) - 1);
      const [one, two, share] = poseAt(Math.min(duration, Math.max(0, seconds + shift)));
      followed.addScaledVector(rootAt(one).lerp(rootAt(two), share), 1 / samples);
    }
    return followed;
  }

  function placeCamera() {
    if (element("follow").checked) {
      const { x, y } = centreAt(now);
      target.set(x, y, middleHeight);
    }
    const azimuth = (orbit.azimuth * Math.PI) / 180, elevation = (orbit.elevation * Math.PI) / 180;
    const level = orbit.distance * Math.cos(elevation);
    camera.position.set(
      target.x + level * Math.sin(azimuth),
      target.y - level * Math.cos(azimuth),
      target.z + orbit.distance * Math.sin(elevation),
    );
    camera.position.z = Math.max(camera.position.z, floor + 0.05 * size);
    camera.lookAt(target);
    const robot = mover.position;
    sun.position.set(robot.x - 1.6 * size, robot.y - 2.2 * size, floor + 5 * size);
    sun.target.position.set(robot.x, robot.y, floor);
    ground.position.set(Math.round(robot.x / (2 * square)) * 2 * square,
      Math.round(robot.y / (2 * square)) * 2 * square, floor);
  }
  Object.assign(sun.shadow.camera,
    { left: -2.2 * size, right: 2.2 * size, top: 2.2 * size, bottom: -2.2 * size, far: 14 * size });

  // --- time

  let now = 0, playing = false, drawnAt = 0, dirty = true;
  const charts = episode.signals.map((signal) => {
    const values = new Float32Array(bytes(signal.values).buffer);
    return new Chart(element("charts"), { ...signal, values }, episode.steps, duration, seek);
  });
  const dials = {};
  for (const [key, name] of [["time", "time"], ["metres", "forward"], ["gained", "return so far"]]) {
    if (key === "metres" && !distances) continue;
    const entry = element("dials").appendChild(document.createElement("div"));
    entry.appendChild(document.createElement("dt")).textContent = name;
    dials[key] = entry.appendChild(document.createElement("dd"));
  }
  element("scrub").max = duration;

  function seek(seconds) {
    setPlaying(false);
    moveTo(seconds);
  }
  function moveTo(seconds) {
    now = Math.min(duration, Math.max(0, seconds));
    dirty = true;
  }
  function setPlaying(value) {
    if (value && now >= duration) moveTo(0);
    playing = value;
    element("play").textContent = playing ? "❚❚" : "▶";
    element("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  }

  function signed(value) {
    return (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
  }
  function draw() {
    pose(now);
    placeCamera();
    const step = Math.min(episode.steps, Math.floor(now / episode.stepSeconds + 1e-6));
    trail.setDrawRange(0, 6 * poseAt(now)[0]);
    renderer.render(scene, camera);
    const whole = !element("near").checked || duration <= NEAR_SECONDS;
    const from = Math.min(duration - NEAR_SECONDS, Math.max(0, now - NEAR_SECONDS / 2));
    for (const chart of charts)
      chart.draw(now, ...(whole ? [0, duration] : [from, from + NEAR_SECONDS]));
    element("scrub").value = now;
    element("clock").textContent = `step ${step} of ${episode.steps}`;
    dials.time.textContent = `${now.toFixed(2)} s`;
    dials.gained.textContent = signed(returns[step]);
    if (distances) dials.metres.textContent = `${distances[step].toFixed(2).replace("-", "−")} m`;
  }
  function loop(milliseconds) {
    if (playing) {
      moveTo(now + ((milliseconds - drawnAt) / 1000) * Number(element("speed").value));
      if (now >= duration) setPlaying(false);
    }
    drawnAt = milliseconds;
    if (dirty) {
      dirty = false;
      draw();
    }
    requestAnimationFrame(loop);
  }

  function resize() {
    const { clientWidth: width, clientHeight: height } = element("stage");
    renderer.setPixelRatio(Math.min(2, window.devicePixelRatio || 1));
    renderer.setSize(width, height, false);
    camera.aspect = width / Math.max(1, height);
    // A tall page shows as much to the left and right as a square one.
    camera.fov = camera.aspect < 1 ? Math.min(90, 38 / camera.aspect) : 38;
    camera.updateProjectionMatrix();
    for (const chart of charts) chart.resize();
    dirty = true;
  }

  // --- input

  element("play").addEventListener("click", () => setPlaying(!playing));
  element("scrub").addEventListener("input", (event) => seek(Number(event.target.value)));
  for (const box of ["follow", "near"])
    element(box).addEventListener("change", () => (dirty = true));
  for (const button of document.querySelectorAll("[data-view]"))
    button.addEventListener("click", () => {
      Object.assign(orbit, views[button.dataset.view]);
      dirty = true;
    });
  const canvas = element("scene");
  canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
  canvas.addEventListener("pointermove", (event) => {
    if (!event.buttons) return;
    orbit.azimuth -= 0.35 * event.movementX;
    orbit.elevation = Math.min(89, Math.max(1, orbit.elevation + 0.35 * event.movementY));
    dirty = true;
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const factor = Math.exp(0.001 * event.deltaY);
    orbit.distance = Math.min(20 * size, Math.max(0.8 * size, orbit.distance * factor));
    dirty = true;
  }, { passive: false });
  document.addEventListener("keydown", (event) => {
    if (["BUTTON", "SELECT"].includes(event.target.tagName) || event.target.id === "scrub") return;
    if (event.key === " ") setPlaying(!playing);
    else if (event.key === "ArrowRight") seek(now + episode.stepSeconds);
    else if (event.key === "ArrowLeft") seek(now - episode.stepSeconds);
    else return;
    event.preventDefault();
  });
  new ResizeObserver(resize).observe(document.body);
  resize();
  requestAnimationFrame(loop);

  window.replay = {
    seek,
    duration,
    get time() { return now; },
    get playing() { return playing; },
    get root() { return mover.position.toArray(); },
    get links() { return links.map((link) => link.getWorldPosition(new THREE.Vector3()).toArray()); },
    get camera() { return { ...orbit, position: camera.position.toArray() }; },
  };
}

loadThree().then(start).catch((error) => {
  const note = element("stage").appendChild(document.createElement("p"));
  note.id = "failure";
  note.textContent = `This browser cannot show the scene: ${error.message}`;
});
